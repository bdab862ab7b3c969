#include "engine_side/server/generate_calls.h"

#include <memory>
#include <utility>
#include <vector>

namespace layercast {

void GenerateCalls::Begin(const Json& params, const RpcReply& reply, const SequenceNews& news) {
  CheckLeastVersion(params, served_());
  const auto bound = StalenessBoundFrom(params, bounds_.max_staleness);
  if (!bound) return Generate(params, reply, news);
  followed_.Check(*bound, reply, [this, params, reply, news] { Generate(params, reply, news); });
}

void GenerateCalls::Generate(const Json& params, const RpcReply& reply, const SequenceNews& news) {
  std::vector<SequenceRequest> requests = SequencesOf(params, bounds_.config, bounds_.max_model_len);
  // The callbacks of the sequences are the second owners.
  auto answers = std::make_shared<GenerateAnswers>(params, requests.size(), reply);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (news) requests[i].picked = [news, i](const Sequence& sequence) { news(i, sequence, nullptr); };
    const auto done = [answers, news, i](const Sequence& sequence, const char* finish) {
      if (news) news(i, sequence, finish);
      answers->Done(i, sequence, finish);
    };
    generator_.Add(std::move(requests[i]), done, reply.abandoned());
  }
}

}  // namespace layercast
