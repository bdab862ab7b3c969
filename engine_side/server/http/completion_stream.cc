#include "engine_side/server/http/completion_stream.h"

#include <utility>

#include "engine_side/server/http/http_errors.h"
#include "layercast/error.h"

namespace layercast {
namespace {

std::string Event(const Json& json) { return "data: " + HttpText(json) + "\n\n"; }

}  // namespace

CompletionStream::CompletionStream(const CompletionRequest& request, std::shared_ptr<PendingCompletion> pending,
                                   const HttpConnection& client, std::shared_ptr<void> seat)
    : form_(request),
      usage_wanted_(request.usage_in_stream),
      pending_(std::move(pending)),
      client_(client),
      seat_(std::move(seat)) {}

// Waits until there is something to take. False: nobody is there for it.
bool CompletionStream::AwaitNews() {
  if (!client_.Await(pending_->rung())) return false;
  pending_->rung().Clear();
  return true;
}

HttpAnswer CompletionStream::Whole() {
  while (true) {
    if (const std::optional<Json> answer = pending_->Answer()) {
      if (answer->contains("error")) throw ErrorFromJson(answer->at("error"));
      return JsonAnswer(form_.Whole(answer->at("result")));
    }
    if (!AwaitNews()) throw Error(ErrorCode::kCancelled, "the engine was ended");
  }
}

HttpAnswer CompletionStream::InPieces(const std::shared_ptr<CompletionStream>& stream) {
  // Once a token is there, its event says that all is well; what fails before has its own status.
  std::optional<std::string> first = stream->Next();
  if (!first) throw Error(ErrorCode::kCancelled, "the engine was ended");
  return {.type = "text/event-stream", .next = [stream, first = std::move(first)]() mutable {
            return first ? std::exchange(first, std::nullopt) : stream->Next();
          }};
}

std::optional<std::string> CompletionStream::Next() {
  while (events_.empty()) {
    if (ended_) return std::nullopt;
    const std::optional<Json> answer = pending_->Answer();  // before the tokens, which came before it
    while (const std::optional<PickedTokens> picked = pending_->TakeTokens()) {
      events_.push_back(Event(form_.Chunk(*picked)));
      tokens_ += picked->tokens.size();
    }
    if (answer) {
      NoteEnd(*answer);
    } else if (events_.empty() && !AwaitNews()) {
      return std::nullopt;
    }
  }
  std::string next = std::move(events_.front());
  events_.pop_front();
  return next;
}

void CompletionStream::NoteEnd(const Json& answer) {
  ended_ = true;
  if (answer.contains("error")) {
    const Error error = ErrorFromJson(answer.at("error"));
    if (tokens_ == 0) throw error;
    const int status = HttpStatusOf(error.code(), true);
    events_.push_back(Event(HttpErrorJson(status, ErrorCodeName(error.code()), error.what())));
  } else if (usage_wanted_) {
    events_.push_back(Event(form_.UsageChunk(tokens_)));
  }
  events_.emplace_back("data: [DONE]\n\n");
}

}  // namespace layercast
