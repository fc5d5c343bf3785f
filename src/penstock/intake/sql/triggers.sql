create or replace trigger inventory_slots_place_new
    before insert on public.inventory_slots
    for each row execute function penstock_intake.place_slot();

create or replace trigger inventory_slots_place_returned
    before update of status on public.inventory_slots
    for each row when (new.status = 'AVAILABLE' or new.reservation_id is null)
    execute function penstock_intake.place_slot();

create or replace trigger inventory_slots_count
    after insert on public.inventory_slots
    referencing new table as added
    for each statement execute function penstock_intake.count_stock();

create or replace trigger intake_pools_number_holders
    after insert or update of max_per_user on public.intake_pools
    for each row when (new.max_per_user is not null)
    execute function penstock_intake.number_holders();
