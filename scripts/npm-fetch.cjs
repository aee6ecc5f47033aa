// Fetches one package archive with npm's own client, going on where a broken download stopped.
//
//   node npm-fetch.cjs PACKAGE@VERSION FILE
//
// `npm pack` starts again from nothing, which hurts at 178 MB on a bad line. So this asks `npm view` where the
// archive is and takes it through the fetch library inside npm (same registry, proxy and certificates as npm
// itself), with a byte range for the part that FILE already has. Where that library is not to be found it falls
// back to `npm pack`. The caller checks the checksum; this only moves bytes.
'use strict';
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const ATTEMPTS_MAX = 5;
const IDLE_MS_MAX = 60_000;

const npm = (...args) => execFileSync('npm', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }).trim();

function npmLibrary() {
  const npmHome = path.dirname(path.dirname(fs.realpathSync(execFileSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).trim())));
  const places = [npmHome, path.join(npm('root', '-g'), 'npm')];
  for (const place of places) {
    try {
      return require(require.resolve('npm-registry-fetch', { paths: [place] }));
    } catch (error) {
      if (error.code !== 'MODULE_NOT_FOUND') throw error;
    }
  }
  return null;
}

function npmSettings() {
  const all = JSON.parse(npm('config', 'ls', '--long', '--json'));
  const ca = all.ca ?? (all.cafile && fs.existsSync(all.cafile) ? fs.readFileSync(all.cafile, 'utf8') : undefined);
  const own = Object.fromEntries(Object.entries(all).filter(([key]) => key.startsWith('//') || key.endsWith(':registry')));
  return {
    ...own,
    registry: all.registry,
    proxy: all.proxy ?? undefined,
    httpsProxy: all['https-proxy'] ?? undefined,
    noProxy: all.noproxy || undefined,
    strictSSL: all['strict-ssl'] ?? true,
    timeout: IDLE_MS_MAX,
    ca,
  };
}

// Appends to `file` what it lacks; true when the archive is whole.
async function attempt(fetch, url, file, settings) {
  const have = fs.existsSync(file) ? fs.statSync(file).size : 0;
  // `identity`: a range of a re-encoded body would not fit the bytes already there.
  const headers = { 'accept-encoding': 'identity', ...(have ? { range: `bytes=${have}-` } : {}) };
  let response;
  try {
    response = await fetch(url, { ...settings, headers });
  } catch (error) {
    if (error.statusCode === 416) return true; // nothing is left to fetch
    throw error;
  }
  const resumed = response.status === 206;
  const total = Number(response.headers.get('content-length') || 0) + (resumed ? have : 0);
  if (resumed) console.error(`deps:   going on at ${mb(have)} of ${mb(total)} MB`);
  const out = fs.createWriteStream(file, { flags: resumed ? 'a' : 'w' });
  const start = resumed ? have : 0;
  const shows = process.stderr.isTTY && total > 5e6;
  await new Promise((resolve, reject) => {
    response.body.on('error', (error) => out.end(() => reject(error)));
    out.on('error', reject);
    out.on('finish', resolve);
    response.body.pipe(out);
    if (shows) response.body.on('data', () => process.stderr.write(`\rdeps:   ${mb(start + out.bytesWritten)} of ${mb(total)} MB`));
  });
  if (shows) process.stderr.write('\n');
  return total === 0 || fs.statSync(file).size >= total;
}

const mb = (bytes) => Math.round(bytes / 1e6);

function pack(spec, file) {
  const folder = fs.mkdtempSync(`${file}.`);
  const name = npm('pack', spec, '--silent', '--pack-destination', folder).split('\n').pop();
  fs.renameSync(path.join(folder, name), file);
  fs.rmSync(folder, { recursive: true });
}

async function main() {
  const [spec, file] = process.argv.slice(2);
  const fetch = npmLibrary();
  if (!fetch) return pack(spec, file);
  const url = npm('view', spec, 'dist.tarball');
  if (!url) throw new Error(`npm knows no ${spec}`);
  const settings = npmSettings();
  for (let n = 1; ; n += 1) {
    try {
      if (await attempt(fetch, url, file, settings)) return;
      console.error('deps:   the connection ended early');
    } catch (error) {
      console.error(`deps:   ${error.message}`);
    }
    if (n === ATTEMPTS_MAX) throw new Error(`gave up after ${n} tries`);
    await new Promise((resolve) => setTimeout(resolve, 1000 * 2 ** (n - 1)));
  }
}

main().catch((error) => {
  console.error(`deps:   ${error.message}`);
  process.exit(1);
});
