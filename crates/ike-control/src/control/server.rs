//! The daemon's end of the control socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ike_config::seconds;
use ike_tokio::Target;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::WriteHalf;

use super::protocol::{LONGEST_REQUEST, Request, Response};
use crate::error::OperatorError;
use crate::local::{LocalSocket, Place};
use crate::operator::{Operator, Reloaded};
use crate::views::IkeSa;

/// Clients at a time; more wait.
const CLIENTS: usize = 64;
/// A client that says nothing for this long is gone.
const SILENCE: Duration = Duration::from_secs(300);
/// A client has this long to take an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// After how long at one command the data plane is said to hang.
const STUCK: Duration = Duration::from_millis(700);
const HANGS: &str = "the data plane has not finished a command for some time: try again, and restart the daemon if that \
                     does not help";
/// How often to look whether a client still waits for its answer.
const LOOK: Duration = Duration::from_secs(1);

/// A control socket that is there and waits for clients. Removed when dropped.
#[derive(Debug)]
pub struct ControlSocket {
    socket: LocalSocket,
    patience: Duration,
}

impl ControlSocket {
    /// Makes the socket at `path`, for its owner alone.
    ///
    /// # Errors
    /// The socket cannot be made, or a daemon answers there already.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("control socket {}: {error}", path.display()))
        };
        Ok(Self { socket: LocalSocket::bind(path).map_err(explain)?, patience: PATIENCE })
    }

    /// Gives clients `patience` to take an answer, instead of 30 seconds.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Serves clients until dropped. `config_file` is what `reload` reads.
    pub async fn serve(self, operator: Operator, config_file: Option<PathBuf>) {
        let patience = self.patience;
        self.socket
            .serve(CLIENTS, |stream, place| {
                let (operator, file) = (operator.clone(), config_file.clone());
                async move {
                    let served = client(stream, &place, &operator, file.as_deref(), patience);
                    if let Err(error) = served.await {
                        tracing::debug!(%error, "control client");
                    }
                }
            })
            .await;
    }
}

async fn client(
    mut stream: UnixStream,
    place: &Place,
    operator: &Operator,
    file: Option<&Path>,
    patience: Duration,
) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut read).take(LONGEST_REQUEST as u64);
        match tokio::time::timeout(SILENCE, limited.read_until(b'\n', &mut line)).await {
            Ok(read) => read?,
            Err(_) => return Ok(()),
        };
        if line.is_empty() {
            return Ok(());
        }
        place.busy();
        let complete = line.ends_with(b"\n");
        let response = match serde_json::from_slice(&line) {
            Ok(request) if complete => {
                // A task: the command continues if the client does not listen any more.
                let file = file.map(Path::to_path_buf);
                let waits = waits(&request);
                let task = tokio::spawn(answer(request, operator.clone(), file));
                tokio::select! {
                    response = task => response.map_err(io::Error::other)?,
                    () = hangs(operator), if !waits => Response::error(HANGS),
                    () = hung_up(&write) => return Ok(()),
                }
            }
            _ if line.len() == LONGEST_REQUEST => Response::error("request too long"),
            Ok(_) => Response::error("request without a newline"),
            Err(error) => Response::error(format!("not a request: {error}")),
        };
        let mut out = serde_json::to_vec(&response)?;
        out.push(b'\n');
        tokio::time::timeout(patience, write.write_all(&out)).await??;
        if !complete {
            return Ok(());
        }
        place.idle();
    }
}

/// True if the client waits for an outcome, as long as it says.
fn waits(request: &Request) -> bool {
    !matches!(request, Request::List | Request::Leases { .. } | Request::Reload { .. })
}

/// Returns when the data plane has been at one command for [`STUCK`], and so within a second if it hangs.
async fn hangs(operator: &Operator) {
    loop {
        tokio::time::sleep(STUCK / 4).await;
        if operator.handle().plane_busy().is_some_and(|time| time >= STUCK) {
            return;
        }
    }
}

/// Returns when the client has closed its socket. One that has only ended its sending still listens.
async fn hung_up(write: &WriteHalf<'_>) {
    loop {
        tokio::time::sleep(LOOK).await;
        if !write.ready(Interest::WRITABLE).await.is_ok_and(|ready| !ready.is_write_closed()) {
            return;
        }
    }
}

async fn answer(request: Request, operator: Operator, file: Option<PathBuf>) -> Response {
    match request {
        Request::List => match operator.list().await {
            Ok(views) => {
                let sas: Vec<IkeSa> = views.iter().map(IkeSa::new).collect();
                let waiting = operator.waiting(&views).await;
                let down = operator.taken_down(&views);
                let without_second_line = operator.program().without_second_line();
                match serde_json::to_value(sas) {
                    Ok(sas) => Response {
                        ok: true,
                        sas: Some(sas),
                        waiting,
                        down,
                        without_second_line,
                        ..Response::default()
                    },
                    Err(error) => Response::error(error.to_string()),
                }
            }
            Err(error) => Response::error(error.to_string()),
        },
        Request::Leases { pool } => {
            match serde_json::to_value(operator.program().pools(pool.as_deref(), true)) {
                Ok(pools) => Response { ok: true, pools: Some(pools), ..Response::default() },
                Err(error) => Response::error(error.to_string()),
            }
        }
        Request::Reload { revoke } => match operator.reload_file(file.as_deref(), revoke).await {
            Ok(Reloaded { warnings, delayed, live }) => {
                Response { ok: true, warnings, delayed, live, ..Response::default() }
            }
            Err(error) => {
                let config = matches!(error, OperatorError::Mistakes(_));
                Response { config, ..Response::error(error.to_string()) }
            }
        },
        Request::Up(named) => {
            let target = named.target();
            within(named.timeout, async { operator.up(&target).await.map(|()| 1) }).await
        }
        Request::Redirect { gateway, ike } => {
            let target = Target { ike: Some(ike), ..Target::default() };
            within(None, operator.redirect(&target, gateway, None, None)).await
        }
        Request::UpAll { timeout } => within(timeout, operator.up_all()).await,
        Request::Down(named) => within(named.timeout, operator.take_down(&named.target())).await,
        Request::Rekey(named) => within(named.timeout, operator.rekey(&named.target())).await,
        Request::Reauth(named) => {
            within(named.timeout, operator.reauthenticate(&named.target())).await
        }
    }
}

/// Waits for `work` as long as the client wants to.
async fn within(
    timeout: Option<f64>,
    work: impl Future<Output = Result<usize, OperatorError>>,
) -> Response {
    let limit = timeout.and_then(seconds);
    let outcome = match limit {
        Some(limit) => match tokio::time::timeout(limit, work).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let error = format!("no outcome after {} s; it goes on", limit.as_secs_f64());
                return Response { timed_out: true, ..Response::error(error) };
            }
        },
        None => work.await,
    };
    match outcome {
        Ok(count) => Response::count(count),
        Err(error) => Response::error(error.to_string()),
    }
}
