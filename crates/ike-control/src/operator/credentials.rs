//! Keys, certificates and shared secrets that control clients load.

use toml::de::DeTable;

use super::Operator;
use super::reloading::blocking;
use crate::error::OperatorError;
use crate::program::Loader;

impl Operator {
    /// Loads a private key of the type `kind` (`any` for each type), and returns its identifier.
    ///
    /// # Errors
    /// What is wrong with the key.
    pub async fn load_key(&self, octets: &[u8], kind: &str) -> Result<String, OperatorError> {
        self.load_by(|loader| loader.add_key(octets, kind)).await
    }

    /// Loads a private key in a token, by a section `token` of `[secrets]`, and returns its identifier.
    ///
    /// # Errors
    /// What is wrong with the section or the token.
    pub async fn load_token(&self, table: DeTable<'static>) -> Result<String, OperatorError> {
        self.load_by(|loader| loader.add_token(table)).await
    }

    /// Takes a loaded private key away.
    ///
    /// # Errors
    /// [`OperatorError::NotLoaded`].
    pub async fn unload_key(&self, id: &str) -> Result<(), OperatorError> {
        self.load_by(|loader| match loader.remove_key(id) {
            true => Ok(()),
            false => Err(OperatorError::NotLoaded(id.to_owned())),
        })
        .await
    }

    /// The identifiers of the private keys that [`Self::unload_key`] takes.
    pub async fn loaded_keys(&self) -> Vec<String> {
        let _one = self.loading.lock().await;
        self.loader().map(Loader::key_ids).unwrap_or_default()
    }

    /// Loads certificates, all of CAs if `ca` is true.
    ///
    /// # Errors
    /// What is wrong with them.
    pub async fn load_certificates(&self, octets: &[u8], ca: bool) -> Result<(), OperatorError> {
        self.load_by(|loader| loader.add_certificates(octets, ca)).await
    }

    /// Loads a revocation list.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn load_crl(&self, octets: &[u8]) -> Result<(), OperatorError> {
        self.load_by(|loader| loader.add_crl(octets)).await
    }

    /// Loads a shared secret, by a section of `[secrets]` of the kind `kind`. It replaces the secret with the same
    /// `id`. If that is the same, nothing happens.
    ///
    /// # Errors
    /// What is wrong with the section.
    pub async fn load_shared(
        &self,
        id: Option<&str>,
        kind: &str,
        table: DeTable<'static>,
    ) -> Result<(), OperatorError> {
        let mut state = self.loading.lock().await;
        let loader = self.loader()?;
        if id.is_some_and(|id| loader.overlay().has_shared(id, kind, &table)) {
            return Ok(());
        }
        let (key, before) = loader.overlay().put_shared(id, kind, table);
        let outcome = match blocking(|| loader.check_shared(&key)) {
            Ok(()) => self.credentials_in_force(&mut state).await,
            Err(why) => Err(why),
        };
        if outcome.is_err() {
            loader.overlay().take_back_shared(&key, before);
        }
        outcome
    }

    /// Takes a loaded shared secret away.
    ///
    /// # Errors
    /// [`OperatorError::NotLoaded`].
    pub async fn unload_shared(&self, id: &str) -> Result<(), OperatorError> {
        let mut state = self.loading.lock().await;
        let loader = self.loader()?;
        let secret = loader.overlay().remove_shared(id);
        let secret = secret.ok_or_else(|| OperatorError::NotLoaded(id.to_owned()))?;
        let outcome = self.credentials_in_force(&mut state).await;
        if outcome.is_err() {
            loader.overlay().put_back_shared(id, secret);
        }
        outcome
    }

    /// The identifiers of the shared secrets that [`Self::unload_shared`] takes.
    pub async fn loaded_shared(&self) -> Vec<String> {
        let _one = self.loading.lock().await;
        let Ok(loader) = self.loader() else { return Vec::new() };
        loader.overlay().shared_ids().into_iter().map(str::to_owned).collect()
    }

    /// Takes all loaded keys, certificates, revocation lists and shared secrets away.
    ///
    /// # Errors
    /// The mistakes of the configuration without them.
    pub async fn clear_credentials(&self) -> Result<(), OperatorError> {
        self.load_by(|loader| loader.clear_credentials()).await
    }

    /// Changes what is loaded, and puts it in force. If that fails, what was loaded before is loaded again: a change
    /// that stayed would come in force with the next load.
    async fn load_by<T: Send>(
        &self,
        change: impl FnOnce(&dyn Loader) -> Result<T, OperatorError> + Send,
    ) -> Result<T, OperatorError> {
        let mut state = self.loading.lock().await;
        let loader = self.loader()?;
        let put_back = loader.keep_credentials();
        let made = blocking(|| change(loader))?;
        if let Err(why) = self.credentials_in_force(&mut state).await {
            put_back();
            return Err(why);
        }
        Ok(made)
    }
}
