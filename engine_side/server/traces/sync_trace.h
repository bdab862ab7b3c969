// The timeline of one reload of an engine: what its own process records, put together with what its ranks and its
// publishers have. For the caller that asks for it, and for a collector. Used by the reloader.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/server/group/rank_group.h"
#include "src/control/json_forms.h"
#include "src/trace/otlp/otlp_sender.h"
#include "src/trace/process_trace.h"
#include "src/trace/trace_context.h"
#include "src/trace/trace_recorder.h"

namespace layercast {

// Resource; for one thread at a time.
class SyncTrace {
 public:
  // `params` are those of `reload_weights`. `otlp` may be null. If neither asks for a timeline, nothing is recorded.
  SyncTrace(const Json& params, std::string session, OtlpSender* otlp);

  // A lane of the engine's own process; null: nothing is recorded.
  TraceLane* Lane(std::string_view name, TraceKind kind) { return recorder_.Lane(name, kind); }
  // How many spans a lane of each rank may have, so that all of them together fit into an answer.
  std::size_t SpansOfRank(const RankGroup& ranks) const;
  // Asks everybody for what they have recorded, gives it to the collector, and puts it into the outcome as "trace" if
  // the params ask for that. Never throws: a timeline fails no reload.
  void PutTogether(RankGroup& ranks, const std::string& endpoint, const Json& params, Json& outcome) noexcept;

 private:
  std::vector<ProcessTrace> Everybody(RankGroup& ranks, const std::string& endpoint, const Json& params,
                                      const Json& outcome);
  ProcessTrace Mine(const std::string& endpoint, const Json& outcome);
  void AddRanks(RankGroup& ranks, std::vector<ProcessTrace>& all) const;
  void AddPublishers(const RankGroup& ranks, const std::string& publishers, std::vector<ProcessTrace>& all) const;

  const std::string session_;
  OtlpSender* const otlp_;  // null: whoever asks sends the spans, or nobody does
  const bool asked_;        // by the caller
  const bool asker_sends_;
  TraceContext context_;  // and the span that this reload is a part of
  const std::uint64_t span_ = NewSpan();
  std::int64_t to_1970_ = 0;
  TraceRecorder recorder_;
};

}  // namespace layercast
