do $pgmq$
begin
    if to_regprocedure('pgmq.create(text)') is null then
        raise exception using errcode = 'PN004',
            message = 'intake needs pgmq: this server has no such extension, and the Python package '
                      'that carries its SQL is not installed',
            hint = 'pip install ''penstock[intake]'', or let an administrator install pgmq.';
    end if;
end
$pgmq$;
