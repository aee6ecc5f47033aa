//! The one place that speaks to libchdb's C interface, and the only one with unsafe code.
//!
//! The library is loaded at run time and never unloaded: it starts threads that outlive every connection. What
//! leaves this file is safe to use: handles free themselves, buffers are copied or borrowed from a live handle,
//! and one connection is used by one thread at a time (`Send`, not `Sync`).
#![expect(unsafe_code, reason = "the C interface of libchdb; every call is wrapped here")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

type Connector = *mut *mut c_void;
type Handle = *mut c_void;
type Run = unsafe extern "C" fn(Handle, *const c_char, usize, *const c_char, usize) -> Handle;
type RunBound = unsafe extern "C" fn(
    Handle,
    *const c_char,
    usize,
    *const c_char,
    usize,
    *const *const c_char,
    *const usize,
    *const *const c_char,
    *const usize,
    usize,
) -> Handle;
type Count = unsafe extern "C" fn(Handle) -> u64;
type Text = unsafe extern "C" fn(Handle) -> *const c_char;

/// What libchdb fills in when it classifies a statement.
#[repr(C)]
struct Analysis {
    struct_size: u32,
    statement_count: u32,
    class: u32,
    flags: u32,
}

macro_rules! api {
    ($($name:ident: $type:ty = $symbol:literal;)*) => {
        struct Api { $($name: $type,)* }

        impl Api {
            /// # Safety
            /// `library` must be libchdb with the C interface of 26.7: the types are taken on trust.
            unsafe fn load(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the caller vouches for the library, and each symbol is copied out as a plain pointer
                // that stays valid because the library is never unloaded.
                Ok(Self { $($name: unsafe { *library.get::<$type>($symbol)? },)* })
            }
        }
    };
}

api! {
    signal_handlers: unsafe extern "C" fn(c_int) = b"chdb_set_signal_handlers_enabled";
    connect: unsafe extern "C" fn(c_int, *const *const c_char) -> Connector = b"chdb_connect";
    close: unsafe extern "C" fn(Connector) = b"chdb_close_conn";
    shutdown: unsafe extern "C" fn() -> c_int = b"chdb_shutdown";
    query: Run = b"chdb_query_n";
    query_bound: RunBound = b"chdb_query_with_params_n";
    classify: unsafe extern "C" fn(Handle, *const c_char, usize, *const c_char, usize, *mut Analysis) -> c_int
        = b"chdb_classify_query_n";
    answer_free: unsafe extern "C" fn(Handle) = b"chdb_destroy_query_result";
    answer_data: unsafe extern "C" fn(Handle) -> *const u8 = b"chdb_result_buffer";
    answer_bytes: unsafe extern "C" fn(Handle) -> usize = b"chdb_result_length";
    answer_error: Text = b"chdb_result_error";
    result_rows: Count = b"chdb_result_rows_read";
    read_rows: Count = b"chdb_result_storage_rows_read";
    read_bytes: Count = b"chdb_result_storage_bytes_read";
    written_rows: Count = b"chdb_result_rows_written";
    written_bytes: Count = b"chdb_result_bytes_written";
    insert_start: Run = b"chdb_stream_insert_n";
    insert_start_bound: RunBound = b"chdb_stream_insert_with_params_n";
    insert_append: unsafe extern "C" fn(Handle, *const u8, usize) -> c_int = b"chdb_stream_append";
    insert_done: unsafe extern "C" fn(Handle) -> Handle = b"chdb_stream_done";
    insert_cancel: unsafe extern "C" fn(Handle) = b"chdb_stream_cancel_insert";
    insert_error: Text = b"chdb_stream_insert_error";
    insert_free: unsafe extern "C" fn(Handle) = b"chdb_destroy_insert_stream";
}

/// A loaded libchdb.
pub(crate) struct Library {
    api: Api,
    // Held so that the pointers in `api` stay valid.
    _library: std::mem::ManuallyDrop<libloading::Library>,
}

impl Library {
    /// Loads the library at `path` and tells it to leave this process's signal handlers alone.
    pub(crate) fn load(path: &Path) -> Result<Arc<Self>, libloading::Error> {
        // SAFETY: loading runs the library's constructors; the path is the operator's choice, as is the program.
        let library = std::mem::ManuallyDrop::new(unsafe { libloading::Library::new(path) }?);
        // SAFETY: a library without these symbols is refused; one with them is libchdb.
        let api = unsafe { Api::load(&library) }?;
        // SAFETY: callable at any time, takes a flag.
        unsafe { (api.signal_handlers)(0) };
        Ok(Arc::new(Self { api, _library: library }))
    }

    /// Asks the engine to stop its threads; false when it did not (any open MergeTree table prevents it).
    pub(crate) fn shutdown(&self) -> bool {
        // SAFETY: takes nothing; refuses by itself while a connection is open.
        unsafe { (self.api.shutdown)() == 0 }
    }
}

/// Leaves the process without running exit handlers: those of the engine assert after heavy use.
pub(crate) fn exit_now(code: i32) -> ! {
    unsafe extern "C" {
        fn _exit(code: c_int) -> !;
    }
    // SAFETY: ends the process and touches no memory of ours.
    unsafe { _exit(code) }
}

/// What a statement would do, as the engine's own parser sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Leaves no trace and has a result: SELECT, SHOW, DESCRIBE, EXPLAIN, EXISTS, CHECK.
    Reads,
    /// Anything else that parses.
    Acts,
    /// Does not parse.
    Unknown,
}

/// Row and byte counts of a finished statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Rows in the result.
    pub(crate) result_rows: u64,
    /// Rows read from tables.
    pub(crate) read_rows: u64,
    /// Bytes read from tables.
    pub(crate) read_bytes: u64,
    /// Rows written to tables.
    pub(crate) written_rows: u64,
    /// Bytes written to tables.
    pub(crate) written_bytes: u64,
}

/// Query parameters by name, each value as the engine reads it (TSV-escaped text).
pub(crate) type Params = [(String, String)];

/// One connection to the engine. It runs one statement at a time; `SET` and `USE` stay on it.
pub(crate) struct Connection {
    library: Arc<Library>,
    raw: Connector,
}

// SAFETY: the engine does not tie a connection to the thread that opened it.
unsafe impl Send for Connection {}

impl Connection {
    /// Connects with the given command-line arguments; `None` when the engine refuses (it says why on stderr).
    pub(crate) fn open(library: &Arc<Library>, args: &[CString]) -> Option<Self> {
        let argv: Vec<*const c_char> = args.iter().map(|arg| arg.as_ptr()).collect();
        // SAFETY: argv holds live, NUL-terminated strings and their count; the engine copies them.
        let raw = unsafe { (library.api.connect)(c_int::try_from(argv.len()).ok()?, argv.as_ptr()) };
        // SAFETY: a connector that is not null points to a handle.
        if raw.is_null() || unsafe { *raw }.is_null() {
            return None;
        }
        Some(Self { library: Arc::clone(library), raw })
    }

    fn handle(&self) -> Handle {
        // SAFETY: checked at open, freed only by drop.
        unsafe { *self.raw }
    }

    /// Runs one statement to its end; a result without a `FORMAT` clause comes in `format`.
    pub(crate) fn run(&self, sql: &[u8], format: &str, params: &Params) -> Answer {
        // SAFETY: the handle is live and all texts outlive the call.
        let raw = unsafe {
            call(self.library.api.query, self.library.api.query_bound, self.handle(), (sql, format), params)
        };
        Answer { library: Arc::clone(&self.library), raw }
    }

    /// How many statements `sql` holds and what the first does, without running them.
    pub(crate) fn classify(&self, sql: &[u8]) -> (u32, Class) {
        let size = u32::try_from(size_of::<Analysis>()).unwrap_or(0);
        let mut analysis = Analysis { struct_size: size, statement_count: 0, class: 4, flags: 0 };
        // SAFETY: the handle is live, the text outlives the call, the struct carries its own size.
        let state = unsafe {
            let text = sql.as_ptr().cast();
            (self.library.api.classify)(self.handle(), text, sql.len(), std::ptr::null(), 0, &mut analysis)
        };
        let class = match (state, analysis.class) {
            (0, 0) => Class::Reads,
            (0, 1..=3) => Class::Acts,
            _ => Class::Unknown,
        };
        (analysis.statement_count, class)
    }

    /// Starts an INSERT whose rows follow; `sql` is the statement without `FORMAT` and data.
    pub(crate) fn insert(&self, sql: &[u8], format: &str, params: &Params) -> Result<Insert<'_>, String> {
        let api = &self.library.api;
        // SAFETY: the handle is live and all texts outlive the call.
        let raw =
            unsafe { call(api.insert_start, api.insert_start_bound, self.handle(), (sql, format), params) };
        let insert = Insert { connection: self, raw, ended: false };
        match insert.error() {
            Some(error) => Err(error),
            None => Ok(insert),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: opened by us and closed once.
        unsafe { (self.library.api.close)(self.raw) };
    }
}

/// # Safety
/// `handle` must be a live connection handle of the library that `plain` and `bound` come from.
unsafe fn call(
    plain: Run,
    bound: RunBound,
    handle: Handle,
    (sql, format): (&[u8], &str),
    params: &Params,
) -> Handle {
    let (text, name) = (sql.as_ptr().cast(), format.as_ptr().cast());
    if params.is_empty() {
        // SAFETY: pointers and lengths belong together; the caller vouches for the handle.
        return unsafe { plain(handle, text, sql.len(), name, format.len()) };
    }
    // Names are read as C strings by some versions, so they get their NUL.
    let names: Vec<CString> =
        params.iter().map(|(key, _)| CString::new(key.as_str()).unwrap_or_default()).collect();
    let name_ptrs: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let name_lens: Vec<usize> = names.iter().map(|name| name.as_bytes().len()).collect();
    let value_ptrs: Vec<*const c_char> = params.iter().map(|(_, value)| value.as_ptr().cast()).collect();
    let value_lens: Vec<usize> = params.iter().map(|(_, value)| value.len()).collect();
    // SAFETY: four arrays of the stated length, alive until the call returns; the engine copies the values.
    unsafe {
        bound(
            handle,
            text,
            sql.len(),
            name,
            format.len(),
            name_ptrs.as_ptr(),
            name_lens.as_ptr(),
            value_ptrs.as_ptr(),
            value_lens.as_ptr(),
            params.len(),
        )
    }
}

/// What a statement gave back.
pub(crate) struct Answer {
    library: Arc<Library>,
    raw: Handle,
}

impl Answer {
    /// The engine's exception text.
    pub(crate) fn error(&self) -> Option<String> {
        if self.raw.is_null() {
            return Some("Code: 1000. DB::Exception: The engine returned no result.".to_owned());
        }
        // SAFETY: the answer is live and owns its text.
        unsafe { text((self.library.api.answer_error)(self.raw)) }
    }

    /// The result in the format asked for; borrowed from the answer.
    pub(crate) fn data(&self) -> &[u8] {
        if self.raw.is_null() {
            return &[];
        }
        // SAFETY: the answer is live; pointer and length describe its own buffer.
        unsafe {
            let (data, bytes) =
                ((self.library.api.answer_data)(self.raw), (self.library.api.answer_bytes)(self.raw));
            if data.is_null() { &[] } else { std::slice::from_raw_parts(data, bytes) }
        }
    }

    /// What was read and written.
    pub(crate) fn stats(&self) -> Stats {
        if self.raw.is_null() {
            return Stats::default();
        }
        let api = &self.library.api;
        // SAFETY: the answer is live.
        unsafe {
            Stats {
                result_rows: (api.result_rows)(self.raw),
                read_rows: (api.read_rows)(self.raw),
                read_bytes: (api.read_bytes)(self.raw),
                written_rows: (api.written_rows)(self.raw),
                written_bytes: (api.written_bytes)(self.raw),
            }
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: ours, freed once.
            unsafe { (self.library.api.answer_free)(self.raw) };
        }
    }
}

/// An INSERT that is being fed; dropped before its end it is cancelled.
pub(crate) struct Insert<'a> {
    connection: &'a Connection,
    raw: Handle,
    ended: bool,
}

impl Insert<'_> {
    fn error(&self) -> Option<String> {
        // SAFETY: the handle is live and owns its text.
        unsafe { text((self.connection.library.api.insert_error)(self.raw)) }
    }

    /// Adds rows; blocks while the engine is behind.
    pub(crate) fn append(&mut self, data: &[u8]) -> Result<(), String> {
        // SAFETY: the handle is live; pointer and length belong together; the engine copies the bytes.
        match unsafe { (self.connection.library.api.insert_append)(self.raw, data.as_ptr(), data.len()) } {
            0 => Ok(()),
            _ => Err(self.error().unwrap_or_else(|| "Code: 1000. DB::Exception: Insert stopped.".to_owned())),
        }
    }

    /// Ends the rows and waits until they are stored.
    pub(crate) fn finish(mut self) -> Answer {
        self.ended = true;
        // SAFETY: the handle is live; the answer is a handle of its own.
        let raw = unsafe { (self.connection.library.api.insert_done)(self.raw) };
        Answer { library: Arc::clone(&self.connection.library), raw }
    }
}

impl Drop for Insert<'_> {
    fn drop(&mut self) {
        let api = &self.connection.library.api;
        // SAFETY: ours; cancelling does not free, freeing happens once.
        unsafe {
            if !self.ended {
                (api.insert_cancel)(self.raw);
            }
            (api.insert_free)(self.raw);
        }
    }
}

/// # Safety
/// `pointer` must be null or a NUL-terminated string that lives for the call.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: see above.
    let text = unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned();
    (!text.is_empty()).then_some(text)
}
