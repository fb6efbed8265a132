//! Counts the engine's questions.

use std::sync::Arc;

use ike_proto::{Answer, Question};
use ike_tokio::{Answerer, Work};

use super::Meters;

/// Passes questions on to another answerer, and counts them.
pub struct Counted {
    answerer: Arc<dyn Answerer>,
    meters: Meters,
}

impl Counted {
    /// Counts the questions that `answerer` answers.
    pub fn new(answerer: Arc<dyn Answerer>, meters: Meters) -> Self {
        Self { answerer, meters }
    }
}

impl Answerer for Counted {
    fn answer_at_once(&self, question: &Question) -> Option<Answer> {
        let answer = self.answerer.answer_at_once(question)?;
        self.meters.asked(question);
        Some(answer)
    }

    fn answer(&self, question: Question) -> Work<'_, Option<Answer>> {
        self.meters.asked(&question);
        self.meters.0.questions_waiting.inc();
        Box::pin(async move {
            let answer = self.answerer.answer(question).await;
            self.meters.0.questions_waiting.dec();
            answer
        })
    }
}
