//! A server of chat completions that answers by a script: HTTP/1.1 with kept connections, one thread for each.
//!
//! The script sees each request, and how often the same body came before, and says what happens: an answer, a status, a
//! wait, a connection that breaks. Nothing here is of the crate, so that unit tests and tests of the pipeline share it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as the script sees it.
pub struct Request {
    pub path: String,
    pub authorization: Option<String>,
    pub body: String,
    /// How many requests with the same path and body came before.
    pub seen: usize,
}

/// What becomes of a request.
pub enum Act {
    /// Status 200 and a completion with this content.
    Answer(String),
    /// Status 200 and this body.
    Body(String),
    /// A status, headers and a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// The same later.
    Slow(Duration, Box<Act>),
    /// The connection is closed before the answer.
    HangUp,
    /// The connection is closed in the middle of the answer.
    Break,
}

/// A body with this content, 100 tokens asked and 1 answered.
pub fn answer(content: &str) -> String {
    serde_json::json!({
        "id": "x", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101},
    })
    .to_string()
}

type Script = dyn Fn(&Request) -> Act + Send + Sync;

struct Shared {
    script: Box<Script>,
    /// Requests by path and body.
    seen: Mutex<HashMap<(String, String), usize>>,
    posts: AtomicUsize,
    connections: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
    closed: AtomicBool,
}

/// A server that runs until it is dropped.
pub struct Stub {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Stub {
    /// Serves a model "m" under `/v1/models`; the script says the rest.
    pub fn start(script: impl Fn(&Request) -> Act + Send + Sync + 'static) -> Stub {
        Stub::scripted(move |request| match request.path.as_str() {
            "/v1/models" => Act::Body(r#"{"object": "list", "data": [{"id": "m", "object": "model"}]}"#.into()),
            _ => script(request),
        })
    }

    /// The script says all.
    pub fn scripted(script: impl Fn(&Request) -> Act + Send + Sync + 'static) -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            seen: Mutex::default(),
            posts: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.closed.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), shared) = (stream, serving.clone()) else { return };
                shared.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        Stub { address, shared }
    }

    /// The base, up to the version.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Completions asked for, each attempt by itself.
    pub fn posts(&self) -> usize {
        self.shared.posts.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The most requests that were under way at once.
    pub fn most_at_once(&self) -> usize {
        self.shared.most.load(Ordering::SeqCst)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        // Wakes the listener, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers the requests of one connection until either side closes it.
fn serve(stream: &TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader, shared) {
        let now = shared.now.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most.fetch_max(now, Ordering::SeqCst);
        let act = (shared.script)(&request);
        let goes_on = perform(stream, act, || {
            shared.now.fetch_sub(1, Ordering::SeqCst);
        });
        if !goes_on {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn read(reader: &mut BufReader<&TcpStream>, shared: &Shared) -> Option<Request> {
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|bytes| *bytes > 0)?;
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "authorization" => authorization = Some(value.trim().to_string()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, body) = (first.split(' ').nth(1)?.to_string(), String::from_utf8(body).ok()?);
    if first.starts_with("POST") {
        shared.posts.fetch_add(1, Ordering::SeqCst);
    }
    let mut all = shared.seen.lock().unwrap();
    let count = all.entry((path.clone(), body.clone())).or_default();
    *count += 1;
    Some(Request { path, authorization, body, seen: *count - 1 })
}

/// Whether the connection goes on. `done` is called before the client can know that its request is over.
fn perform(mut stream: &TcpStream, act: Act, done: impl FnOnce()) -> bool {
    let (status, headers, body) = match act {
        Act::Slow(wait, then) => {
            std::thread::sleep(wait);
            return perform(stream, *then, done);
        }
        Act::HangUp => {
            done();
            return false;
        }
        Act::Break => {
            done();
            let body = answer("7");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body[..body.len() / 2]).as_bytes());
            return false;
        }
        Act::Answer(content) => (200, Vec::new(), answer(&content)),
        Act::Body(body) => (200, Vec::new(), body),
        Act::Status(status, headers, body) => (status, headers, body),
    };
    done();
    let mut text = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    stream.write_all((text + "\r\n" + &body).as_bytes()).is_ok()
}
