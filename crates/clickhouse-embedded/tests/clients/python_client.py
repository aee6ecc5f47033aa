"""The official Python client, unchanged, against the server. Arguments: HOST PORT USER PASSWORD."""

import datetime
import gzip
import logging
import sys
import threading
import time
import traceback

import clickhouse_connect
from clickhouse_connect.driver.exceptions import DatabaseError

# The client logs what it raises; the cases check what it raises.
logging.disable(logging.CRITICAL)

HOST, PORT, USER, PASSWORD = sys.argv[1:5]


def connect(**more):
    settings = {"host": HOST, "port": int(PORT), "username": USER, "password": PASSWORD, **more}
    return clickhouse_connect.get_client(**settings)


def inserts_and_reads(client):
    client.command("CREATE TABLE p_rows (id UInt64, name Nullable(String), at DateTime) ENGINE = MergeTree ORDER BY id")
    at = datetime.datetime(2024, 1, 2, 3, 4, 5)
    summary = client.insert("p_rows", [[1, "a;'b", at], [2, None, at]], column_names=["id", "name", "at"])
    assert summary.written_rows == 2, summary.summary
    result = client.query("SELECT * FROM p_rows ORDER BY id")
    assert result.column_names == ("id", "name", "at"), result.column_names
    assert result.result_rows == [(1, "a;'b", at), (2, None, at)], result.result_rows
    assert client.command("SELECT count() FROM p_rows") == 2
    assert result.query_id, "a query id"


def inserts_many_rows(client):
    client.command("CREATE TABLE p_many (id UInt64, s String) ENGINE = MergeTree ORDER BY id")
    rows = 300_000
    client.insert("p_many", [list(range(rows)), [f"row {n}" for n in range(rows)]], column_names=["id", "s"], column_oriented=True)
    count, total = client.query("SELECT count(), sum(id) FROM p_many").first_row
    assert (count, total) == (rows, rows * (rows - 1) // 2), (count, total)


def inserts_raw_lines(client):
    client.command("CREATE TABLE p_raw (id UInt64, s String) ENGINE = MergeTree ORDER BY id")
    lines = "".join(f'{{"id":{n},"s":"x"}}\n' for n in range(1000))
    client.raw_insert("p_raw", insert_block=lines, fmt="JSONEachRow")
    packed = gzip.compress(lines.encode())
    client.raw_insert("p_raw", insert_block=packed, fmt="JSONEachRow", compression="gzip")
    assert client.command("SELECT count() FROM p_raw") == 2000


def streams(client):
    seen = 0
    with client.query_row_block_stream("SELECT number, toString(number) FROM numbers(500000)") as blocks:
        for block in blocks:
            seen += len(block)
    assert seen == 500_000, seen
    with client.raw_stream("SELECT number FROM numbers(100000)", fmt="CSV") as stream:
        assert sum(chunk.count(b"\n") for chunk in stream) == 100_000


def binds_parameters(client):
    text = "tab\t quote' back\\slash\nline"
    result = client.query(
        "SELECT {i:Int32}, {s:String}, {a:Array(String)}, {n:Nullable(String)}",
        parameters={"i": -7, "s": text, "a": ["x'y", "z"], "n": None},
    )
    assert result.first_row == (-7, text, ["x'y", "z"], None), result.first_row
    assert client.query("SELECT %(s)s", parameters={"s": text}).first_row == (text,)


def applies_settings(client):
    assert client.query("SELECT getSetting('max_threads')", settings={"max_threads": 3}).first_row[0] in (3, "3")
    result = client.raw_query("SELECT toInt64(1) AS a", fmt="JSONEachRow", settings={"output_format_json_quote_64bit_integers": 1})
    assert result == b'{"a":"1"}\n', result


def other_formats(client):
    assert client.raw_query("SELECT 1 AS a, 'x' AS b", fmt="CSVWithNames") == b'"a","b"\n1,"x"\n'
    parquet = client.raw_query("SELECT number FROM numbers(200000)", fmt="Parquet")
    assert parquet[:4] == parquet[-4:] == b"PAR1"


def reports_errors(client):
    error = raised(lambda: client.query("SELECT * FROM p_absent"))
    assert "UNKNOWN_TABLE" in str(error), error
    error = raised(lambda: connect(password="wrong"))
    assert "516" in str(error) or "AUTHENTICATION_FAILED" in str(error), error


def reports_an_error_in_mid_stream(client):
    seen = 0

    def read():
        nonlocal seen
        sql = "SELECT number, throwIf(number = 900000) FROM numbers(1000000)"
        with client.query_row_block_stream(sql, settings={"max_block_size": 10_000, "max_threads": 1}) as blocks:
            for block in blocks:
                seen += len(block)

    error = raised(read)
    assert seen > 0, "rows came before the error"
    assert "throwIf" in str(error) or "395" in str(error), error


def stops_the_query_when_the_client_goes(client):
    other = connect(send_receive_timeout=1, query_retries=0)
    mark = "p_abort"
    thread = threading.Thread(target=lambda: raised(lambda: other.query(f"SELECT '{mark}', sum(sipHash64(number)) FROM numbers(1000000000000)")))
    thread.start()

    def live():
        sql = "SELECT count() FROM system.processes WHERE query LIKE {like:String} AND query NOT LIKE '%system.processes%'"
        return client.query(sql, parameters={"like": f"%{mark}%"}).first_row[0]

    until("the query to run", lambda: live() >= 1)
    thread.join()
    until("the query to stop", lambda: live() == 0)


def raised(run):
    try:
        run()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError("nothing was raised")


def until(what, check):
    limit = time.monotonic() + 20
    while not check():
        assert time.monotonic() < limit, f"waited in vain for {what}"
        time.sleep(0.02)


CASES = [
    inserts_and_reads,
    inserts_many_rows,
    inserts_raw_lines,
    streams,
    binds_parameters,
    applies_settings,
    other_formats,
    reports_errors,
    reports_an_error_in_mid_stream,
    stops_the_query_when_the_client_goes,
]


def main():
    failed = False
    for compress in (False, True, "gzip", "zstd"):
        client = connect(compress=compress)
        for table in ("p_rows", "p_many", "p_raw"):
            client.command(f"DROP TABLE IF EXISTS {table}")
        for case in CASES:
            try:
                case(client)
            except Exception:  # noqa: BLE001
                failed = True
                print(f"{case.__name__} (compress={compress}):", file=sys.stderr)
                traceback.print_exc()
        client.close()
    if failed:
        sys.exit(1)
    print(f"{len(CASES)} cases, four times")


main()
