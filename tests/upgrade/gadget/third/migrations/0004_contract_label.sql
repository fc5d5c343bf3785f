-- Nobody calls refuse any more. Lock: short, on gadget.part. In a transaction.
drop trigger part_watch on gadget.part;
drop function gadget.refuse();
