//! One history while it is read: its sessions in the order of the input, its requests, and the rows set aside.

use std::collections::{HashMap, HashSet};

use super::value::Fault;

/// Characters of a store's text that its language is told from, and of one turn's share in them.
const SAMPLE_CHARS: usize = 16_000;
const SAMPLE_CHARS_A_TURN: usize = 200;

/// The table that a rejected row would have stood in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Turns,
    Requests,
    Labels,
}

/// A row that was set aside.
#[derive(Debug)]
pub struct Reject {
    pub source: Source,
    pub row_id: Option<String>,
    pub fault: Fault,
}

/// A message that can be read.
#[derive(Debug)]
pub struct Turn {
    pub turn_id: String,
    /// Microseconds UTC, as is `added_at`.
    pub spoken_at: Option<i64>,
    pub added_at: Option<i64>,
    pub role: &'static str,
    pub speaker: Option<String>,
    /// The whole line; `None` has nothing to recall but keeps its place.
    pub content: Option<String>,
}

/// A conversation: its turns in the order in which they were said.
#[derive(Debug)]
pub struct Session {
    pub id: String,
    /// Microseconds UTC, where the source says when it began.
    started_at: Option<i64>,
    pub turns: Vec<Turn>,
}

/// A question that can be read.
#[derive(Debug)]
pub struct Request {
    pub request_id: String,
    pub question: String,
    pub asked_at: Option<i64>,
    pub split: Option<String>,
    /// Ids of turns, each once.
    pub evidence: Vec<String>,
}

/// One history.
#[derive(Debug)]
pub struct Store {
    pub tenant_id: String,
    pub store_id: String,
    sessions: Vec<Session>,
    by_id: HashMap<String, usize>,
    session_of_turn: HashMap<String, usize>,
    request_ids: HashSet<String>,
    pub requests: Vec<Request>,
    pub rejects: Vec<Reject>,
}

impl Source {
    pub fn name(self) -> &'static str {
        match self {
            Source::Turns => "turns",
            Source::Requests => "requests",
            Source::Labels => "labels",
        }
    }
}

impl Store {
    pub fn new(tenant_id: &str, store_id: &str) -> Self {
        Store {
            tenant_id: tenant_id.to_owned(),
            store_id: store_id.to_owned(),
            sessions: Vec::new(),
            by_id: HashMap::new(),
            session_of_turn: HashMap::new(),
            request_ids: HashSet::new(),
            requests: Vec::new(),
            rejects: Vec::new(),
        }
    }

    /// The place of a session, which is made where it is new; one that is named again goes on where it was left.
    pub fn session(&mut self, id: &str, started_at: Option<i64>) -> usize {
        let next = self.sessions.len();
        let index = *self.by_id.entry(id.to_owned()).or_insert(next);
        if index == next {
            self.sessions.push(Session { id: id.to_owned(), started_at: None, turns: Vec::new() });
        }
        let known = &mut self.sessions[index].started_at;
        *known = known.iter().copied().chain(started_at).min();
        index
    }

    /// Adds a turn to a session; the second of one id in the store is set aside.
    pub fn add_turn(&mut self, session: usize, turn: Turn) {
        if self.session_of_turn.contains_key(&turn.turn_id) {
            let fault = Fault::new("occurs twice", format!("turn_id {:?} occurs twice in its store", turn.turn_id));
            return self.reject(Source::Turns, Some(turn.turn_id), fault);
        }
        self.session_of_turn.insert(turn.turn_id.clone(), session);
        self.sessions[session].turns.push(turn);
    }

    pub fn has_turn(&self, turn_id: &str) -> bool {
        self.session_of_turn.contains_key(turn_id)
    }

    /// Ids of all turns, in the order of the input.
    pub fn turn_ids(&self) -> impl Iterator<Item = &str> {
        self.sessions.iter().flat_map(|s| &s.turns).map(|t| t.turn_id.as_str())
    }

    /// Adds a request, whose evidence has to be turns of this store; the second of one id is set aside.
    pub fn add_request(&mut self, mut request: Request) {
        if !self.request_ids.insert(request.request_id.clone()) {
            let fault =
                Fault::new("occurs twice", format!("request_id {:?} occurs twice in its store", request.request_id));
            return self.reject(Source::Requests, Some(request.request_id), fault);
        }
        let mut seen = HashSet::new();
        request.evidence.retain(|id| seen.insert(id.clone()));
        self.requests.push(request);
    }

    pub fn reject(&mut self, source: Source, row_id: Option<String>, fault: Fault) {
        self.rejects.push(Reject { source, row_id, fault });
    }

    /// The time of the latest turn, in microseconds UTC.
    pub fn latest(&self) -> Option<i64> {
        self.sessions.iter().flat_map(|s| &s.turns).filter_map(|t| t.spoken_at).max()
    }

    /// The sessions that have turns, by time; equal times in the order of the input. A session without any time
    /// stays behind the one that it follows in the input.
    pub fn in_time_order(&self) -> Vec<&Session> {
        let mut before = i64::MIN;
        let mut sessions: Vec<(i64, &Session)> = Vec::new();
        for session in self.sessions.iter().filter(|s| !s.turns.is_empty()) {
            before = session.time().unwrap_or(before);
            sessions.push((before, session));
        }
        sessions.sort_by_key(|(time, _)| *time);
        sessions.into_iter().map(|(_, session)| session).collect()
    }

    /// How many sessions these turns were said in.
    pub fn sessions_of(&self, turn_ids: &[String]) -> usize {
        turn_ids.iter().filter_map(|id| self.session_of_turn.get(id)).collect::<HashSet<_>>().len()
    }

    /// The beginnings of the turns, in the order of the input: enough to tell the store's language.
    pub fn sample(&self) -> String {
        let turns = self.sessions.iter().flat_map(|s| &s.turns).filter_map(|t| t.content.as_deref());
        let (mut sample, mut chars) = (String::new(), 0);
        for content in turns {
            let end = content.char_indices().nth(SAMPLE_CHARS_A_TURN).map_or(content.len(), |(at, _)| at);
            sample.push_str(&content[..end]);
            sample.push('\n');
            chars += SAMPLE_CHARS_A_TURN;
            if chars >= SAMPLE_CHARS {
                break;
            }
        }
        sample
    }
}

impl Session {
    /// When it began, or else its earliest turn's time.
    fn time(&self) -> Option<i64> {
        self.started_at.or_else(|| self.turns.iter().filter_map(|t| t.spoken_at).min())
    }
}
