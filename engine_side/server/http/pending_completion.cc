#include "engine_side/server/http/pending_completion.h"

#include <utility>

namespace layercast {

RpcReply PendingCompletion::Reply() {
  return RpcReply(
      [self = shared_from_this()](Json answer) {
        {
          const std::lock_guard lock(self->mutex_);
          if (!self->answer_) self->answer_ = std::move(answer);
        }
        self->rung_.Ring();
      },
      given_up_.get_token());
}

SequenceNews PendingCompletion::News() {
  return [self = shared_from_this()](std::size_t choice, const Sequence& sequence, const char* finish) {
    self->Note(choice, sequence, finish);
    self->rung_.Ring();
  };
}

// Goes on with the tokens that are there, if they are of the same choice and version.
void PendingCompletion::Note(std::size_t choice, const Sequence& sequence, const char* finish) {
  if (sequence.error) return;  // which the answer says
  const std::lock_guard lock(mutex_);
  const bool begins =
      picked_.empty() || picked_.back().choice != choice ||
      (finish == nullptr && !picked_.back().tokens.empty() && picked_.back().version != sequence.versions.back());
  if (begins) picked_.push_back({.choice = choice});
  PickedTokens& last = picked_.back();
  if (finish != nullptr) {
    last.finish = finish;
    return;
  }
  last.tokens.push_back(sequence.tokens.back());
  last.logprobs.push_back(sequence.logprobs.back());
  last.version = sequence.versions.back();
}

std::optional<PickedTokens> PendingCompletion::TakeTokens() {
  const std::lock_guard lock(mutex_);
  if (picked_.empty()) return std::nullopt;
  PickedTokens first = std::move(picked_.front());
  picked_.pop_front();
  return first;
}

std::optional<Json> PendingCompletion::Answer() const {
  const std::lock_guard lock(mutex_);
  return answer_;
}

}  // namespace layercast
