//! What every verb gets: where to write, and the way to the server.

use std::cell::RefCell;
use std::path::PathBuf;

use launcher_sdk::Client;

use crate::failure::Failure;
use crate::inside;
use crate::names::ClusterNames;
use crate::output::Output;
use crate::place::Places;

/// The surroundings of one command.
#[derive(Debug)]
pub struct Context {
    pub output: Output,
    /// `--dir`.
    pub dir: Option<PathBuf>,
    pub places: Places,
    /// Clients to say goodbye for at the end.
    pub clients: RefCell<Vec<Client>>,
}

impl Context {
    /// The client directory that this command uses.
    ///
    /// # Errors
    /// There is none.
    pub fn client_dir(&self) -> Result<PathBuf, Failure> {
        self.places.client(self.dir.as_deref())
    }

    /// A connected client.
    ///
    /// # Errors
    /// No client directory, or a server that does not answer.
    pub async fn client(&self) -> Result<Client, Failure> {
        let dir = match self.client_dir() {
            Ok(dir) => dir,
            // Whoever names none may be a job, which has credentials of its own.
            Err(none) if self.dir.is_none() && self.places.rms_dir.is_none() => {
                return inside::client_of_job(self).await?.ok_or(none);
            }
            Err(none) => return Err(none),
        };
        let client = Client::connect(&dir).await?;
        self.clients.borrow_mut().push(client.clone());
        Ok(client)
    }

    /// Ends the links of this command: the server counts those of each user.
    pub async fn farewell(&self) {
        let clients = self.clients.take();
        for client in clients {
            client.close().await;
        }
    }

    /// The names of the clusters, for commands whose answer names them by number.
    ///
    /// # Errors
    /// As every call.
    pub async fn cluster_names(&self, client: &Client) -> Result<ClusterNames, Failure> {
        Ok(ClusterNames::new(client.nodes().await?.clusters))
    }
}
