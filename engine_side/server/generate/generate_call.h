// One `generate` call: turns its prompts into sequences, and collects their answers until the last one has ended.
// RPC.md lists the fields. Used by the engine's service.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "engine_side/server/generate/sequence.h"
#include "layercast/error.h"
#include "layercast/model/config.h"
#include "layercast/version.h"
#include "src/control/rpc.h"

namespace layercast {

// Told of each token of sequence number `index` of a call, and with `finish` that it has ended; else that is null. On
// the generating thread.
using SequenceNews = std::function<void(std::size_t index, const Sequence& sequence, const char* finish)>;

// Whether `served` is this version, by its name, or a later one of its lineage.
bool Reaches(const std::optional<Version>& served, const Version& least);
// {"lineage", "step"}
Version LeastVersionFrom(const Json& json);
// Throws kFailedPrecondition, with both, if the version that is served is not `least_version` ({"lineage", "step"}) of
// the params or a later one of its lineage.
void CheckLeastVersion(const Json& params, const std::optional<Version>& served);

// The sequences that a call asks for, each of at most `max_model_len` tokens. Sequence i of a batch has the call's seed
// plus i. Throws kInvalidArgument naming what the model cannot answer.
std::vector<SequenceRequest> SequencesOf(const Json& params, const ModelConfig& config, std::int64_t max_model_len);

// Resource; thread-safe. The callbacks of the sequences own it together.
class GenerateAnswers {
 public:
  GenerateAnswers(const Json& params, std::size_t sequences, RpcReply reply);
  // Notes that sequence number `index` has ended. The call for the last sequence sends the reply: the answers, or the
  // first error of a sequence that has failed.
  void Done(std::size_t index, const Sequence& sequence, const char* finish);

 private:
  const bool single_;    // the call had "tokens", not "prompts"
  const bool logprobs_;  // log-probabilities are wanted
  const RpcReply reply_;
  std::mutex mutex_;
  std::vector<Json> answers_;   // guarded by mutex_
  std::optional<Error> error_;  // guarded by mutex_
  std::size_t left_;            // guarded by mutex_
};

}  // namespace layercast
