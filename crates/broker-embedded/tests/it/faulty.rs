//! A disk in memory that fails as disks do: it fills up, refuses to sync, and after a crash has lost any part of what was
//! not synced, down to single sectors.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use wavehouse_broker_embedded::files::{Files, Found, Holder, Layout, LockGuard, LogFile};

/// What a disk writes whole.
const SECTOR_BYTES: usize = 512;

/// Where chance comes from; a seed makes a run repeatable.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }
}

#[derive(Debug, Default)]
struct Content {
    /// What a reader sees.
    now: Vec<u8>,
    /// What is on the platter.
    durable: Vec<u8>,
    /// Writes since the last sync.
    loose: Vec<(usize, Vec<u8>)>,
}

type Names = BTreeMap<String, Arc<Mutex<Content>>>;

#[derive(Debug, Clone)]
enum Renaming {
    Set(String, Arc<Mutex<Content>>),
    Move(String, String),
    Remove(String),
}

impl Renaming {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Set(name, content) => drop(names.insert(name.clone(), Arc::clone(content))),
            Self::Move(from, to) => {
                if let Some(content) = names.remove(from) {
                    names.insert(to.clone(), content);
                }
            }
            Self::Remove(name) => drop(names.remove(name)),
        }
    }
}

#[derive(Debug, Default)]
struct Disk {
    names: Names,
    durable_names: Names,
    /// Changes of names since the directory was last synced.
    loose: Vec<Renaming>,
    capacity: Option<usize>,
    syncs_left: Option<u64>,
    dead: bool,
}

impl Disk {
    fn alive(&self) -> io::Result<()> {
        if self.dead { Err(io::Error::other("the process is dead")) } else { Ok(()) }
    }

    fn used(&self) -> usize {
        self.names.values().map(|content| content.lock().unwrap().now.len()).sum()
    }

    fn room_for(&self, more: usize) -> io::Result<()> {
        let full = self.capacity.is_some_and(|capacity| self.used() + more > capacity);
        if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn rename(&mut self, renaming: Renaming) {
        renaming.apply(&mut self.names);
        self.loose.push(renaming);
    }
}

/// One life of a process on the disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faulty {
    disk: Arc<Mutex<Disk>>,
}

impl Faulty {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    /// Bytes of all files.
    pub(crate) fn used(&self) -> usize {
        self.disk().used()
    }

    /// So many bytes fit, or as many as one likes.
    pub(crate) fn set_capacity(&self, bytes: Option<usize>) {
        self.disk().capacity = bytes;
    }

    /// After so many syncs, each one fails.
    pub(crate) fn fail_sync_after(&self, syncs: u64) {
        self.disk().syncs_left = Some(syncs);
    }

    /// The machine loses power. What is on the disk then is the next life's.
    pub(crate) fn crash(&self, chance: &mut Chance) -> Self {
        let mut disk = self.disk();
        disk.dead = true;
        let kept = chance.below(disk.loose.len() as u64 + 1);
        let mut names = disk.durable_names.clone();
        for renaming in disk.loose.iter().take(usize::try_from(kept).unwrap()) {
            renaming.apply(&mut names);
        }
        let survive = |content: &Arc<Mutex<Content>>, chance: &mut Chance| {
            let content = content.lock().unwrap();
            let mut bytes = content.durable.clone();
            for (at, written) in &content.loose {
                tear(&mut bytes, *at, written, chance);
            }
            Arc::new(Mutex::new(Content { now: bytes.clone(), durable: bytes, loose: Vec::new() }))
        };
        let names: Names =
            names.iter().map(|(name, content)| (name.clone(), survive(content, chance))).collect();
        let next = Disk { durable_names: names.clone(), names, capacity: disk.capacity, ..Disk::default() };
        Self { disk: Arc::new(Mutex::new(next)) }
    }

    /// The process is killed, the machine goes on: nothing is lost.
    pub(crate) fn kill(&self) -> Self {
        let mut disk = self.disk();
        disk.dead = true;
        let next = Disk {
            names: disk.names.clone(),
            durable_names: disk.durable_names.clone(),
            loose: disk.loose.clone(),
            capacity: disk.capacity,
            ..Disk::default()
        };
        Self { disk: Arc::new(Mutex::new(next)) }
    }

    /// Changes a byte where it lies.
    pub(crate) fn damage(&self, path: &str, at: usize) {
        let content = Arc::clone(&self.disk().names[path]);
        let mut content = content.lock().unwrap();
        content.now[at] ^= 0x55;
        content.durable[at] ^= 0x55;
    }

    /// Where a text stands in a file.
    pub(crate) fn find(&self, text: &[u8]) -> Option<(String, usize)> {
        self.disk().names.iter().find_map(|(name, content)| {
            let content = content.lock().unwrap();
            let at = content.now.windows(text.len()).position(|window| window == text)?;
            Some((name.clone(), at))
        })
    }
}

/// Writes any part of the sectors.
fn tear(bytes: &mut Vec<u8>, at: usize, written: &[u8], chance: &mut Chance) {
    let end = at + written.len();
    let mut from = at;
    let all = chance.below(3) == 0;
    while from < end {
        let to = end.min((from / SECTOR_BYTES + 1) * SECTOR_BYTES);
        if all || chance.below(2) == 0 {
            bytes.resize(bytes.len().max(to), 0);
            bytes[from..to].copy_from_slice(&written[from - at..to - at]);
        }
        from = to;
    }
}

struct FaultyFile {
    content: Arc<Mutex<Content>>,
    life: Faulty,
}

impl LogFile for FaultyFile {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let content = self.content.lock().unwrap();
        let from = usize::try_from(at).unwrap();
        let found = content.now.get(from..from + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let disk = self.life.disk();
        disk.alive()?;
        let at = usize::try_from(at).unwrap();
        let grows = (at + bytes.len()).saturating_sub(self.content.lock().unwrap().now.len());
        if grows > 0 {
            disk.room_for(grows)?;
        }
        let mut content = self.content.lock().unwrap();
        let length = content.now.len().max(at + bytes.len());
        content.now.resize(length, 0);
        content.now[at..at + bytes.len()].copy_from_slice(bytes);
        content.loose.push((at, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.life.disk();
        disk.alive()?;
        if let Some(left) = &mut disk.syncs_left {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::other("the disk does not sync"))?;
        }
        let mut content = self.content.lock().unwrap();
        content.durable = content.now.clone();
        content.loose.clear();
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.life.disk().alive()?;
        let mut content = self.content.lock().unwrap();
        let length = usize::try_from(bytes).unwrap();
        content.now.resize(length, 0);
        content.durable.resize(length, 0);
        content.loose.retain(|(at, written)| at + written.len() <= length);
        Ok(())
    }
}

impl Files for Faulty {
    fn create_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &str) -> io::Result<Result<LockGuard, Holder>> {
        Ok(Ok(Box::new(())))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Found>> {
        let disk = self.disk();
        let found = disk.names.iter().filter_map(|(path, content)| {
            let name = path.strip_prefix(dir)?.strip_prefix('/')?.to_owned();
            Some(Found { name, bytes: content.lock().unwrap().now.len() as u64 })
        });
        Ok(found.collect())
    }

    fn create(&self, path: &str, bytes: u64, _layout: Layout) -> io::Result<Arc<dyn LogFile>> {
        let mut disk = self.disk();
        disk.alive()?;
        let bytes = usize::try_from(bytes).unwrap();
        disk.room_for(bytes)?;
        let zeros = vec![0; bytes];
        let content = Arc::new(Mutex::new(Content { now: zeros.clone(), durable: zeros, loose: Vec::new() }));
        disk.rename(Renaming::Set(path.to_owned(), Arc::clone(&content)));
        Ok(Arc::new(FaultyFile { content, life: self.clone() }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn LogFile>> {
        let disk = self.disk();
        let content = disk.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(FaultyFile { content: Arc::clone(content), life: self.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.alive()?;
        if !disk.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.rename(Renaming::Move(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.alive()?;
        disk.rename(Renaming::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.alive()?;
        disk.durable_names = disk.names.clone();
        disk.loose.clear();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = self.disk();
        Ok(disk.capacity.map_or(1 << 40, |capacity| capacity.saturating_sub(disk.used()) as u64))
    }
}
