-- Products are installed one by one; the views over all of them are rebuilt after each.
do $views$
begin
    if to_regprocedure('penstock.install_views()') is not null then
        perform penstock.install_views();
    end if;
end
$views$;
