//! The lake: Delta tables at a URL. Nothing outside this folder knows Delta.
//!
//! A table is read as a [`Snapshot`]: a version and its files. It is written a unit at a time: the unit's file is laid
//! down first ([`Snapshot::write`]), which nobody sees, and becomes the table's content by a commit
//! ([`Snapshot::commit`]) that also records the unit's fingerprint. A unit whose fingerprint is recorded is done; a
//! process that dies between the two leaves a file that no reader sees.

mod commit;
mod nulls;
mod place;
mod snapshot;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use serde::{Deserialize, Serialize};

pub use commit::{Outcome, Pending};
pub use place::Place;
pub use snapshot::{DataFile, Snapshot};
pub use write::Unit;

use crate::error::{Context, Error, Result};
use crate::schema;

/// Shards of a lake whose job names no number.
pub const SHARDS_DEFAULT: u32 = 64;
const MARKER: &str = "_memslate.json";

/// A folder of tables, with its format and its number of shards.
#[derive(Debug, Clone)]
pub struct Lake {
    place: Place,
    shards: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    format: u32,
    shards: u32,
}

impl Lake {
    /// Opens the lake at `url`, or makes an empty one with `shards` shards (64 if not given).
    pub async fn open_or_create(url: &str, shards: Option<u32>) -> Result<Lake> {
        let place = Place::parse(url)?;
        if let Some(marker) = read_marker(&place).await? {
            return Lake::checked(place, marker, shards);
        }
        let marker = Marker { format: schema::FORMAT_VERSION, shards: shards.unwrap_or(SHARDS_DEFAULT) };
        if marker.shards == 0 {
            return Err(Error::usage("shards must be 1 or more"));
        }
        place.make_folder()?;
        let bytes = serde_json::to_vec(&marker).expect("a marker is plain data");
        let options = PutOptions { mode: PutMode::Create, ..Default::default() };
        match place.store.put_opts(&place.path.clone().join(MARKER), PutPayload::from(bytes), options).await {
            Ok(_) => Ok(Lake { place, shards: marker.shards }),
            Err(object_store::Error::AlreadyExists { .. }) => {
                let marker =
                    read_marker(&place).await?.ok_or_else(|| Error::transient("the lake's marker vanished"))?;
                Lake::checked(place, marker, shards)
            }
            Err(e) => Err(place.error("cannot make a lake here", e)),
        }
    }

    /// The lake at `url`, if there is one; refused where its format or its number of shards is another.
    pub async fn find(url: &str, shards: Option<u32>) -> Result<Option<Lake>> {
        let place = Place::parse(url)?;
        let marker = read_marker(&place).await?;
        marker.map(|marker| Lake::checked(place, marker, shards)).transpose()
    }

    /// Opens a lake that exists.
    pub async fn open(url: &str) -> Result<Lake> {
        match Lake::find(url, None).await? {
            Some(lake) => Ok(lake),
            None => Err(Error::data("there is no lake here")
                .at(url)
                .next("make one with `memslate run JOB.toml --lake URL`")),
        }
    }

    fn checked(place: Place, marker: Marker, shards: Option<u32>) -> Result<Lake> {
        if marker.format != schema::FORMAT_VERSION {
            return Err(Error::data(format!(
                "the lake has format {}, this program reads and writes format {}",
                marker.format,
                schema::FORMAT_VERSION
            ))
            .at(place.to_string())
            .next("use the program that wrote it, or write into a new lake"));
        }
        if let Some(wanted) = shards
            && wanted != marker.shards
        {
            return Err(Error::usage(format!("the lake has {} shards, the job asks for {wanted}", marker.shards))
                .at(place.to_string())
                .next("leave `shards` out of the job, or write into a new lake"));
        }
        Ok(Lake { place, shards: marker.shards })
    }

    pub fn shards(&self) -> u32 {
        self.shards
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The table at its latest version; makes it if it is not there.
    pub async fn table(&self, table: &'static schema::Table) -> Result<Snapshot> {
        Snapshot::open_or_create(&self.place.join(table.name), table).await.map_err(|e| e.at(table.name))
    }

    /// The table at its latest version, or nothing if it was never made.
    pub async fn existing(&self, table: &'static schema::Table) -> Result<Option<Snapshot>> {
        Snapshot::open(&self.place.join(table.name), table).await.map_err(|e| e.at(table.name))
    }

    /// Lays a file beside the tables, such as a run's summary.
    pub async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let mut path = self.place.path.clone();
        for part in name.split('/') {
            path = path.join(part);
        }
        let put = self.place.store.put(&path, PutPayload::from(bytes)).await;
        put.map(|_| ()).map_err(|e| self.place.error("cannot write", e))
    }

    /// A file that lies beside the tables, or nothing.
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let mut path = self.place.path.clone();
        for part in name.split('/') {
            path = path.join(part);
        }
        let got = match self.place.store.get(&path).await {
            Ok(got) => got,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(e) => return Err(self.place.error("cannot read", e)),
        };
        let bytes = got.bytes().await.map_err(|e| self.place.error("cannot read", e))?;
        Ok(Some(bytes.to_vec()))
    }

    /// The object store that holds the lake, for the engine.
    pub fn object_store(&self) -> (url::Url, Arc<dyn ObjectStore>) {
        (self.place.root_url(), self.place.store.clone())
    }
}

async fn read_marker(place: &Place) -> Result<Option<Marker>> {
    let got = match place.store.get(&place.path.clone().join(MARKER)).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(place.error("cannot read the lake", e)),
    };
    let bytes = got.bytes().await.map_err(|e| place.error("cannot read the lake", e))?;
    serde_json::from_slice(&bytes).or_data(format!("{place}/{MARKER} is damaged")).map(Some)
}
