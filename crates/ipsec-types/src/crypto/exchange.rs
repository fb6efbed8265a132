//! Key exchange methods as a provider holds them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::KeMethod;

/// A [`KeMethod`], owned or static. A copy of it is the same method.
#[derive(Clone)]
pub struct KeyExchange(Handle);

#[derive(Clone)]
enum Handle {
    Static(&'static dyn KeMethod),
    Shared(Arc<dyn KeMethod>),
}

impl KeyExchange {
    /// A method that the program has made.
    pub fn new(method: impl KeMethod + 'static) -> Self {
        Self(Handle::Shared(Arc::new(method)))
    }
}

impl Deref for KeyExchange {
    type Target = dyn KeMethod;

    fn deref(&self) -> &Self::Target {
        match &self.0 {
            Handle::Static(method) => *method,
            Handle::Shared(method) => &**method,
        }
    }
}

impl From<&'static dyn KeMethod> for KeyExchange {
    fn from(method: &'static dyn KeMethod) -> Self {
        Self(Handle::Static(method))
    }
}

impl From<Arc<dyn KeMethod>> for KeyExchange {
    fn from(method: Arc<dyn KeMethod>) -> Self {
        Self(Handle::Shared(method))
    }
}

impl fmt::Debug for KeyExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
