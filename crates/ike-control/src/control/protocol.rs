//! Requests and responses: one JSON object per line, one response per request, in order.
//!
//! ```text
//! {"command":"up","name":"net","timeout":30}
//! {"ok":true,"count":1}
//! {"command":"up-all"}
//! {"ok":true,"count":16}
//! {"command":"list"}
//! {"ok":true,"sas":[{"name":"site","uniqueid":1,"state":"ESTABLISHED",…}]}
//! {"command":"up","name":"lab"}
//! {"ok":false,"error":"the peer does not answer"}
//! ```

use std::net::IpAddr;

use ike_tokio::Target;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::views::{TakenDown, Waiting};

/// Octets a request line may have at most, its newline included.
pub const LONGEST_REQUEST: usize = 64 << 10;
/// Octets a response line may have at most: hundreds of thousands of SAs.
pub const LONGEST_RESPONSE: usize = 1 << 30;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Bring up a child or connection.
    Up(Named),
    /// Bring up all that is configured, has a peer's address and is not up.
    UpAll {
        /// Seconds to wait for the outcome; none waits as long as it takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<f64>,
    },
    /// Delete SAs.
    Down(Named),
    /// Rekey SAs.
    Rekey(Named),
    /// Reauthenticate IKE SAs.
    Reauth(Named),
    /// Send clients to another gateway.
    Redirect {
        /// Its address.
        gateway: IpAddr,
        /// The connection.
        ike: String,
    },
    /// Describe all SAs.
    List,
    /// Describe the pools and their leases.
    Leases {
        /// One pool alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool: Option<String>,
    },
    /// Take the configuration file anew.
    Reload {
        /// End IKE SAs whose secret or trust anchor it replaces, too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        revoke: bool,
    },
}

/// What a command is about.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// A child, or a connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A connection, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ike: Option<String>,
    /// A child, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// Seconds to wait for the outcome; none waits as long as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
}

impl Named {
    /// The same without the time.
    pub fn target(&self) -> Target {
        Target {
            name: self.name.clone(),
            ike: self.ike.clone(),
            child: self.child.clone(),
            ..Target::default()
        }
    }
}

/// What the daemon answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Response {
    /// True if all of it worked.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True if there was no outcome in time; the command goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// True if the configuration file has mistakes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub config: bool,
    /// SAs the command was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// What `list` lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sas: Option<Value>,
    /// What `list` says about children that wait for a way to their peers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
    /// What `list` says about children that a command has taken down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<TakenDown>,
    /// Why there is no second line behind the data plane, as `list` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_second_line: Option<String>,
    /// What `reload` has to say about a configuration that is in force, each a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What of it is not in force before the next start, each a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delayed: Vec<String>,
    /// A sentence for each IKE SA that a reload ends, and for each connection whose IKE SAs have settings that it has
    /// changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<String>,
    /// What `leases` lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Value>,
}

impl Response {
    /// A failure.
    pub fn error(why: impl Into<String>) -> Self {
        Self { error: Some(why.into()), ..Self::default() }
    }

    /// A success with `count` SAs.
    pub fn count(count: usize) -> Self {
        Self { ok: true, count: Some(count), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_documented() {
        let up: Request =
            serde_json::from_str(r#"{"command":"up","name":"net","timeout":30}"#).unwrap();
        let named = Named { name: Some("net".to_owned()), timeout: Some(30.0), ..Named::default() };
        assert_eq!(up, Request::Up(named));
        assert_eq!(
            serde_json::from_str::<Request>(r#"{"command":"list"}"#).unwrap(),
            Request::List
        );
        for wrong in
            [r#"{"command":"up","nam":"net"}"#, r#"{"command":"fly"}"#, "{}", "[]", "7", ""]
        {
            assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn responses_say_only_what_there_is_to_say() {
        assert_eq!(serde_json::to_string(&Response::count(2)).unwrap(), r#"{"ok":true,"count":2}"#);
        let error = serde_json::to_string(&Response::error("no")).unwrap();
        assert_eq!(error, r#"{"ok":false,"error":"no"}"#);
    }
}
