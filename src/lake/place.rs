//! Where things lie: a folder or a URL, and the object store behind it.

use std::fmt;
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use url::Url;

use crate::error::{Context, Error, Result};

/// A location in an object store: a local folder, `s3://`, `gs://`, `az://`, `memory://`.
#[derive(Debug, Clone)]
pub struct Place {
    pub url: Url,
    /// The store, whose paths begin at the root of the URL.
    pub store: Arc<dyn ObjectStore>,
    /// The location's path in the store.
    pub path: Path,
}

impl Place {
    /// Reads a folder's path or a URL. Credentials of cloud stores come from the environment.
    pub fn parse(text: &str) -> Result<Place> {
        let url = to_url(text)?;
        if url.scheme() == "file" {
            let path =
                url.to_file_path().map_err(|()| Error::usage(format!("{text} is not a path on this machine")))?;
            let path = Path::from_absolute_path(path).or_usage(format!("{text} cannot be used as a location"))?;
            return Ok(Place { url, store: Arc::new(LocalFileSystem::new()), path });
        }
        let options = std::env::vars().map(|(k, v)| (k.to_lowercase(), v));
        let (store, path) = object_store::parse_url_opts(&url, options)
            .or_usage(format!("{text} cannot be used as a location"))
            .map_err(|e| e.next("use a folder, or a URL that begins with s3://, gs:// or az://"))?;
        Ok(Place { url, store: Arc::from(store), path })
    }

    /// A place below this one.
    pub fn join(&self, name: &str) -> Place {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/{name}/", url.path().trim_end_matches('/')));
        Place { url, store: self.store.clone(), path: self.path.clone().join(name) }
    }

    /// Scheme and host: what the store is registered under.
    pub fn root_url(&self) -> Url {
        let mut url = self.url.clone();
        url.set_path("/");
        url
    }

    /// The file here, or the Parquet files below; none where nothing is. Hidden files and folders are passed over.
    pub async fn files(&self) -> Result<Vec<ObjectMeta>> {
        let listed: Vec<ObjectMeta> =
            self.store.list(Some(&self.path)).try_collect().await.map_err(|e| self.error("cannot list", e))?;
        let below = |file: &ObjectMeta| {
            let mut parts = file.location.prefix_match(&self.path).into_iter().flatten();
            let hidden = parts.any(|p| p.as_ref().starts_with(['_', '.']));
            !hidden && file.location.extension().is_some_and(|e| e.eq_ignore_ascii_case("parquet"))
        };
        let mut files: Vec<ObjectMeta> = listed.into_iter().filter(below).collect();
        if files.is_empty() {
            match self.store.head(&self.path).await {
                Ok(file) => files.push(file),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(_) if self.is_folder() => {}
                Err(e) => return Err(self.error("cannot read", e)),
            }
        }
        files.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(files)
    }

    pub fn is_local(&self) -> bool {
        self.url.scheme() == "file"
    }

    /// Whether it is a folder of this machine: no file, so that asking for one fails in some way.
    fn is_folder(&self) -> bool {
        self.is_local() && self.url.to_file_path().is_ok_and(|path| path.is_dir())
    }

    /// Makes the folder where stores have folders.
    pub(super) fn make_folder(&self) -> Result<()> {
        if self.is_local() {
            let path = self.url.to_file_path().map_err(|()| Error::internal("a file URL without a path"))?;
            std::fs::create_dir_all(&path).or_data(format!("cannot make the folder {}", path.display()))?;
        }
        Ok(())
    }

    pub(super) fn error(&self, what: &str, e: object_store::Error) -> Error {
        use object_store::Error as E;
        let error = match &e {
            E::NotFound { .. } | E::PermissionDenied { .. } | E::Unauthenticated { .. } | E::NotSupported { .. } => {
                Error::data(what)
            }
            _ => Error::transient(what),
        };
        error.at(self.to_string()).source(e)
    }
}

impl fmt::Display for Place {
    /// A local place as a path, another one as its URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.url.to_file_path() {
            Ok(path) if self.is_local() => path.display().to_string(),
            _ => self.url.to_string(),
        };
        f.write_str(if text == "/" { "/" } else { text.trim_end_matches('/') })
    }
}

fn to_url(text: &str) -> Result<Url> {
    let is_url = text.split_once("://").is_some_and(|(scheme, _)| scheme.len() > 1 && !scheme.contains('/'));
    let mut url = if is_url {
        Url::parse(text).or_usage(format!("{text:?} is not a URL"))?
    } else {
        if text.is_empty() {
            return Err(Error::usage("a location is empty"));
        }
        let path = without_dots(&std::path::absolute(text).or_usage(format!("{text:?} is not a path"))?);
        Url::from_directory_path(&path).map_err(|()| Error::usage(format!("{text:?} is not a path")))?
    };
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// The path without `.` and `..`, which object stores do not know.
fn without_dots(path: &std::path::Path) -> std::path::PathBuf {
    let mut out = std::path::PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                out.pop();
            }
            std::path::Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_are_places() {
        let place = Place::parse("/tmp/a b/lake").unwrap();
        assert_eq!((place.to_string().as_str(), place.path.as_ref()), ("/tmp/a b/lake", "tmp/a b/lake"));
        let below = place.join("turns");
        assert_eq!(below.to_string(), "/tmp/a b/lake/turns");
        assert_eq!(Place::parse("/tmp/a/../b/./c").unwrap().to_string(), "/tmp/b/c");
        assert_eq!(Place::parse("memory:///x").unwrap().path.as_ref(), "x");
        assert_eq!(Place::parse("ftp://host/x").unwrap_err().class, crate::error::Class::Usage);
        assert_eq!(Place::parse("").unwrap_err().class, crate::error::Class::Usage);
    }
}
