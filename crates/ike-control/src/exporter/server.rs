//! The endpoint that Prometheus scrapes: HTTP/1.1, `GET /metrics`, and nothing else.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ike_config::MetricsListen;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::scrape;
use crate::local::{LocalSocket, Place, Places};
use crate::metrics::Meters;
use crate::operator::Operator;

/// Clients at a time. Of more, the one that is idle longest gives way, while it sends its request or takes
/// the answer.
const CLIENTS: usize = 16;
/// A client has this long to ask and to take the answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// And this long to send its request's header.
const HEADER: Duration = Duration::from_secs(5);
/// Octets of a request's header at the most.
const LARGEST_HEADER: usize = 16 << 10;
/// Who asks again within this time gets the same answer.
const FRESH: Duration = Duration::from_secs(1);

/// Content type of Prometheus' text format.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// A socket that waits for Prometheus.
#[derive(Debug)]
pub enum MetricsSocket {
    /// For whom the address lets in.
    Tcp(TcpListener),
    /// For its owner alone.
    Unix(LocalSocket),
}

impl MetricsSocket {
    /// Makes the socket. Must be called in a tokio runtime.
    pub fn bind(listen: &MetricsListen) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("metrics at {listen}: {error}"))
        };
        Ok(match listen {
            MetricsListen::Tcp(address) => {
                if !address.ip().is_loopback() {
                    tracing::warn!(%address, "metrics are for whoever reaches this address");
                }
                let listener = std::net::TcpListener::bind(address).map_err(explain)?;
                listener.set_nonblocking(true).map_err(explain)?;
                Self::Tcp(TcpListener::from_std(listener).map_err(explain)?)
            }
            MetricsListen::Unix(path) => Self::Unix(LocalSocket::bind(path).map_err(explain)?),
        })
    }

    /// Where it listens, if that is an address.
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Serves clients until dropped.
    pub async fn serve(self, operator: Operator, meters: Meters) {
        let source = Arc::new(Source { operator, meters, last: Mutex::new(None) });
        match self {
            Self::Unix(socket) => {
                let serve = |stream, place| client(stream, place, Arc::clone(&source));
                socket.serve(CLIENTS, serve).await;
            }
            Self::Tcp(listener) => {
                let places = Places::new(CLIENTS);
                loop {
                    match listener.accept().await {
                        Ok((stream, _)) => {
                            let place = Arc::new(places.take().await);
                            let served = client(stream, Arc::clone(&place), Arc::clone(&source));
                            tokio::spawn(async move {
                                tokio::select! {
                                    () = served => {}
                                    () = place.left() => {
                                        tracing::debug!("metrics: a client is closed to serve another one");
                                    }
                                }
                            });
                        }
                        Err(error) => {
                            tracing::warn!(%error, "metrics");
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    }
                }
            }
        }
    }
}

/// Scrapes for all clients, one at a time.
struct Source {
    operator: Operator,
    meters: Meters,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Source {
    async fn text(&self) -> Result<Bytes, String> {
        let mut last = self.last.lock().await;
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(text.clone());
        }
        let text = Bytes::from(scrape(&self.operator, &self.meters).await?);
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

async fn client(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    place: Arc<Place>,
    source: Arc<Source>,
) {
    let service = service_fn(|request| {
        let (place, source) = (Arc::clone(&place), Arc::clone(&source));
        async move {
            place.busy();
            let answer = answer(&request, &source).await;
            place.idle();
            Ok::<_, Infallible>(answer)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .keep_alive(false)
        .max_buf_size(LARGEST_HEADER)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(PATIENCE, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "metrics client"),
        Err(_) => tracing::debug!("metrics client took too long"),
    }
}

async fn answer(request: &Request<Incoming>, source: &Source) -> Response<Full<Bytes>> {
    let plain = |status: StatusCode, text: String| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "the metrics are at /metrics\n".to_owned());
    }
    if *request.method() != Method::GET && *request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "GET only\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match source.text().await {
        Ok(text) => {
            let mut response = Response::new(Full::new(text));
            response.headers_mut().insert(CONTENT_TYPE, TEXT);
            response
        }
        Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}
