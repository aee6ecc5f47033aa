// The official Node client, unchanged, against the server. Arguments: URL USER PASSWORD. Exits 0 when all holds.
'use strict';
const assert = require('node:assert/strict');
const { Readable } = require('node:stream');
const { createClient, ClickHouseError, ClickHouseLogLevel } = require('@clickhouse/client');

const [url, username, password] = process.argv.slice(2);
const open = (more = {}) => createClient({ url, username, password, log: { level: ClickHouseLogLevel.OFF }, ...more });

const cases = {
  async ping_and_version(client) {
    assert.equal((await client.ping()).success, true);
    const [row] = await (await client.query({ query: 'SELECT version() AS v', format: 'JSONEachRow' })).json();
    assert.match(row.v, /^\d+\.\d+\.\d+\.\d+$/);
  },

  async insert_rows_and_read_them_in_many_formats(client) {
    await client.command({ query: 'CREATE TABLE n_rows (id UInt64, name Nullable(String), at DateTime) ENGINE = MergeTree ORDER BY id' });
    const done = await client.insert({
      table: 'n_rows',
      values: [{ id: 1, name: "it's; {a}", at: '2024-01-02 03:04:05' }, { id: 2, name: null, at: '2024-01-02 03:04:06' }],
      format: 'JSONEachRow',
      query_id: 'n-insert-1',
    });
    assert.equal(done.query_id, 'n-insert-1');
    assert.equal(done.summary.written_rows, '2');
    const json = await (await client.query({ query: 'SELECT * FROM n_rows ORDER BY id', format: 'JSON' })).json();
    assert.equal(json.rows, 2);
    assert.equal(json.data[0].name, "it's; {a}");
    assert.equal(json.meta[1].type, 'Nullable(String)');
    const csv = await (await client.query({ query: 'SELECT id, name FROM n_rows ORDER BY id', format: 'CSVWithNames' })).text();
    assert.equal(csv, '"id","name"\n1,"it\'s; {a}"\n2,\\N\n');
  },

  async insert_streams(client) {
    await client.command({ query: 'CREATE TABLE n_stream (id UInt64, s String) ENGINE = MergeTree ORDER BY id' });
    const rows = 200_000;
    async function* make() {
      for (let id = 0; id < rows; id += 1) yield { id, s: `row ${id}` };
    }
    await client.insert({ table: 'n_stream', values: Readable.from(make(), { objectMode: true }), format: 'JSONEachRow' });
    const [{ n, total }] = await (await client.query({ query: 'SELECT count() AS n, sum(id) AS total FROM n_stream', format: 'JSONEachRow' })).json();
    assert.equal(Number(n), rows);
    assert.equal(Number(total), (rows * (rows - 1)) / 2);
  },

  async reads_streams_with_bounded_pieces(client) {
    const set = await client.query({ query: 'SELECT number, toString(number) AS s FROM numbers(500000)', format: 'JSONEachRow' });
    let count = 0;
    for await (const rows of set.stream()) for (const row of rows) { count += 1; row.json(); }
    assert.equal(count, 500_000);
  },

  async binds_parameters(client) {
    const set = await client.query({
      query: 'SELECT {i:Int32} AS i, {s:String} AS s, {a:Array(String)} AS a, {n:Nullable(String)} AS n, {d:DateTime} AS d',
      query_params: { i: -7, s: "tab\t quote' back\\slash\nline", a: ["x'y", 'z'], n: null, d: new Date(Date.UTC(2024, 0, 2, 3, 4, 5)) },
      format: 'JSONEachRow',
    });
    assert.deepEqual(await set.json(), [{ i: -7, s: "tab\t quote' back\\slash\nline", a: ["x'y", 'z'], n: null, d: '2024-01-02 03:04:05' }]);
  },

  async applies_settings(client) {
    const set = await client.query({
      query: "SELECT getSetting('max_threads') AS t, 1 = 1 AS b, toInt64(9007199254740993) AS big",
      format: 'JSONEachRow',
      clickhouse_settings: { max_threads: 3, output_format_json_quote_64bit_integers: 1, wait_end_of_query: 1 },
    });
    const [row] = await set.json();
    assert.equal(Number(row.t), 3);
    assert.equal(row.big, '9007199254740993');
  },

  async reports_errors(client) {
    const error = await client.query({ query: 'SELECT * FROM n_absent' }).catch((thrown) => thrown);
    assert.ok(error instanceof ClickHouseError);
    assert.equal(error.code, '60');
    assert.equal(error.type, 'UNKNOWN_TABLE');
    const stranger = open({ password: 'wrong' });
    const refused = await stranger.query({ query: 'SELECT 1' }).catch((thrown) => thrown);
    assert.equal(refused.code, '516');
    await stranger.close();
    await client.command({ query: 'CREATE TABLE n_bad (id UInt8) ENGINE = MergeTree ORDER BY id' });
    const bad = await client.insert({ table: 'n_bad', values: [{ id: 1 }, { id: 'x' }], format: 'JSONEachRow' }).catch((thrown) => thrown);
    assert.equal(bad.code, '27');
    assert.match(bad.message, /row 2/);
  },

  async reports_an_error_in_mid_stream(client, compressed) {
    const set = await client.query({
      query: 'SELECT number, throwIf(number = 900000) AS f FROM numbers(1000000)',
      format: 'JSONEachRow',
      clickhouse_settings: { max_block_size: '10000', max_threads: 1 },
    });
    let seen = 0;
    const error = await (async () => {
      for await (const rows of set.stream()) seen += rows.length;
      return null;
    })().catch((thrown) => thrown);
    assert.ok(seen > 0, 'rows came before the error');
    assert.ok(error instanceof Error, 'a broken result is no success');
    // With compression the client may see the broken connection before it has decoded the exception.
    if (!compressed) assert.equal(error.code, '395', `a ClickHouseError, not ${error}`);
  },

  async stops_the_query_on_abort(client) {
    const controller = new AbortController();
    const mark = `n_abort_${process.pid}`;
    const running = client
      .query({ query: `SELECT '${mark}', sum(sipHash64(number)) FROM numbers(1000000000000)`, abort_signal: controller.signal })
      .catch((thrown) => thrown);
    const live = async () => {
      const query = "SELECT count() AS n FROM system.processes WHERE query LIKE {like:String} AND query NOT LIKE '%system.processes%'";
      const set = await client.query({ query, query_params: { like: `%${mark}%` }, format: 'JSONEachRow' });
      return Number((await set.json())[0].n);
    };
    await until('the query to run', async () => (await live()) === 1);
    controller.abort();
    assert.match((await running).message, /abort/i);
    await until('the query to stop', async () => (await live()) === 0);
  },

  async executes_raw_statements(client) {
    const { stream, query_id } = await client.exec({ query: 'SELECT 42 FORMAT CSV', query_id: 'n-exec' });
    let text = '';
    for await (const chunk of stream) text += chunk;
    assert.equal(text, '42\n');
    assert.equal(query_id, 'n-exec');
  },
};

async function until(what, check) {
  const limit = Date.now() + 20_000;
  while (!(await check())) {
    if (Date.now() > limit) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function main() {
  for (const compression of [{ request: false, response: false }, { request: true, response: true }]) {
    const admin = open();
    for (const table of ['n_rows', 'n_stream', 'n_bad']) await admin.command({ query: `DROP TABLE IF EXISTS ${table}` });
    await admin.close();
    const client = open({ compression, keep_alive: { enabled: true } });
    for (const [name, run] of Object.entries(cases)) {
      try {
        await run(client, compression.response);
      } catch (error) {
        console.error(`${name} (compression: ${compression.request}):\n${error.stack}`);
        process.exitCode = 1;
      }
    }
    await client.close();
  }
  if (!process.exitCode) console.log(`${Object.keys(cases).length} cases, twice`);
}

main();
