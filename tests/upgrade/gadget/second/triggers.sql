create or replace trigger part_watch before insert on gadget.part
    for each row execute function gadget.refuse();
