#include "src/control/reload_together.h"

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "src/base/threads/thread_name.h"
#include "src/control/answer_time.h"
#include "src/control/engine_outcome.h"
#include "src/control/json_forms.h"
#include "src/control/rpc.h"
#include "src/control/vote.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

// An engine gives up its staged version if nobody renews the lease for this long.
constexpr std::chrono::milliseconds kLease{10'000};
constexpr std::chrono::milliseconds kRenewal{1'000};
// For what is decided, whatever the reload's deadline says: engines commit, and then read back what they serve. One
// that is gone is noticed long before.
constexpr std::chrono::minutes kCommitTime{10};

// That all engines have staged the same version. Thread-safe.
class VersionAgreement {
 public:
  explicit VersionAgreement(std::optional<Version> expected) : expected_(std::move(expected)) {}

  // Returns empty if `staged` is the version that was asked for (by its digest, where that is known) or, failing that,
  // the one that was added first; else what is wrong.
  std::string Disagreement(const Version& staged) {
    const std::lock_guard lock(mutex_);
    if (!expected_ || !expected_->digest) expected_ = staged;
    if (expected_->digest == staged.digest) return "";
    return "staged " + staged.ToString() + ", expected " + expected_->ToString();
  }

 private:
  std::mutex mutex_;
  std::optional<Version> expected_;  // guarded by mutex_
};

// What all participants of one joint reload share.
struct JointReload {
  JointReload(std::size_t engines, const std::optional<Version>& expected, std::chrono::milliseconds timeout,
              std::stop_token stop, ReloadTrace* trace_of_caller)
      : trace(trace_of_caller),
        version(expected),
        staged(engines),
        prepared(engines),
        there(engines),
        engines_give_up(Deadline::After(TimeWithin(timeout))),
        deadline(Deadline::After(timeout).OrStop(std::move(stop))),
        last_vote(Deadline::After(timeout + kRenewal)) {}
  ReloadTrace* const trace;  // null: nobody wants a timeline
  VersionAgreement version;
  Vote staged;
  Vote prepared;
  Vote there;                      // with its version, after all were prepared: the first may have waited long
  const Deadline engines_give_up;  // the engines' own deadline, or a little before it
  const Deadline deadline;         // of the whole reload
  const Deadline last_vote;        // by then everybody has voted, unless this process itself fails
};

// Takes one engine through the calls of a joint reload. One thread only: each participant has its own.
class Participant {
 public:
  Participant(std::string endpoint, JointReload& reload, RpcClient& client)
      : endpoint_(std::move(endpoint)), reload_(reload), client_(client) {}

  EngineOutcome Run(Json params) {
    params["lease_ms"] = kLease.count();
    staged_ = Call("stage_weights", params, reload_.deadline);
    const std::string disagreement = staged_.ok ? reload_.version.Disagreement(version_) : "";
    if (const auto ended = EndedAt(reload_.staged, staged_, disagreement)) return *ended;
    const EngineOutcome prepared = Call("prepare_weights", TicketParams(), reload_.deadline);
    if (const auto ended = EndedAt(reload_.prepared, prepared)) return *ended;
    const std::optional<Error> gone = RenewLease();
    const EngineOutcome there{.endpoint = endpoint_, .ok = !gone, .error = gone};
    if (const auto ended = EndedAt(reload_.there, there)) return *ended;
    return Call("commit_weights", TicketParams(), Deadline::After(kCommitTime));
  }

 private:
  // Says how this engine's step went, and waits for the others'. Empty: all go on; else with what this one ends.
  std::optional<EngineOutcome> EndedAt(Vote& vote, const EngineOutcome& step, const std::string& disagreement = "") {
    if (step.ok && disagreement.empty()) {
      vote.Yes();
    } else {
      VoteNo(vote, step.ok ? disagreement : step.error->what());
    }
    if (!step.ok) return step;
    if (Agreed(vote)) return std::nullopt;
    return Cancelled(vote.why()->what());
  }

  // Whatever the fault's own code is: the others act on the first one at once, and none takes its place.
  void VoteNo(Vote& vote, const std::string& fault) const {
    vote.No({ErrorCode::kFailedPrecondition, NamingEngine(endpoint_, fault)});
  }

  // The params of a call that is about what this participant has staged.
  Json TicketParams() const { return {{"ticket", ticket_}}; }

  // Returns what goes wrong instead of throwing it: the other participants wait for this one's vote.
  EngineOutcome Call(const std::string& method, const Json& params, Deadline deadline) {
    EngineOutcome outcome{.endpoint = endpoint_};
    try {
      answered_ = false;
      const Json answer = OnTrace(reload_.trace, endpoint_, method, client_, params, deadline);
      answered_ = true;
      outcome = OutcomeFromJson(endpoint_, answer);
      if (!outcome.ok && !outcome.error)
        outcome.error.emplace(ErrorCode::kCorrupt, method + " failed without an error");
      if (answer.contains("staged")) version_ = VersionFromJson(answer["staged"]);
      if (answer.contains("ticket")) ticket_ = answer["ticket"].get<std::uint64_t>();
    } catch (const Error& error) {
      outcome.ok = false;
      outcome.error = error;
    } catch (const std::exception& error) {  // of an answer that cannot be read, or of this process
      outcome.ok = false;
      outcome.error.emplace(ErrorCode::kCorrupt, "engine " + endpoint_ + ": " + method + ": " + error.what());
    }
    return outcome;
  }

  // Waits until the vote is decided, and meanwhile renews the engine's lease on its staged version.
  bool Agreed(Vote& vote) {
    while (true) {
      if (const std::optional<bool> decided = vote.AwaitFor(kRenewal)) return *decided;
      if (reload_.last_vote.Passed()) vote.No({ErrorCode::kDeadlineExceeded, "not all engines were asked in time"});
      KeepLeaseOrVoteNo(vote);
    }
  }

  // An engine that lets its version go is the fault, unless all engines' time is over: then the fault is with those
  // whose votes are still missing, which will come by the deadline.
  void KeepLeaseOrVoteNo(Vote& vote) {
    const std::optional<Error> gone = RenewLease();
    if (gone && !reload_.engines_give_up.Passed()) VoteNo(vote, gone->what());
  }

  // Empty: the engine holds its version; else what is wrong.
  std::optional<Error> RenewLease() {
    try {
      client_.Call("hold_weights", TicketParams(), reload_.deadline);
      return std::nullopt;
    } catch (const std::exception& error) {  // also what an unreadable answer throws
      return ErrorOfCall(error);
    }
  }

  // The engine says what it serves now. If it does not, it serves what it did when it had staged: nothing is committed.
  EngineOutcome Cancelled(const std::string& why) {
    Json params = TicketParams();
    params["reason"] = why;
    EngineOutcome outcome = Call("abort_weights", params, Deadline(reload_.deadline.at()));  // also once it was stopped
    if (!answered_) {
      outcome.version = outcome.previous = staged_.version;
      outcome.report = staged_.report;
    }
    outcome.ok = false;
    outcome.error.emplace(ErrorCode::kCancelled, "not committed, as on no other engine: " + why);
    return outcome;
  }

  const std::string endpoint_;
  JointReload& reload_;
  RpcClient& client_;
  bool answered_ = false;   // the last call was
  EngineOutcome staged_{};  // its answer to that
  Version version_;         // that it has staged
  std::uint64_t ticket_ = 0;
};

// A malformed endpoint is returned as it is; it becomes the outcome of that engine alone later.
std::string AddressOf(const std::string& endpoint, Deadline deadline) {
  try {
    return ByAddress(endpoint, deadline);
  } catch (const Error&) {
    return endpoint;
  }
}

// An engine that is listed under two names would wait for itself: it stages one version at a time, and would have to
// hold the first one until it has staged the second.
void CheckDistinctAddresses(const std::vector<std::string>& endpoints, Deadline deadline) {
  std::map<std::string, std::string> by_address;
  for (const std::string& endpoint : endpoints) {
    const auto [first, is_new] = by_address.emplace(AddressOf(endpoint, deadline.AtMost(kToLookUp)), endpoint);
    if (is_new) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "engine " + endpoint + " is engine " + first->second + ": expected each of them once");
  }
}

EngineOutcome TakePart(EngineClients& clients, std::size_t engine, const Json& params, JointReload& reload) {
  NameThisThread("lc-controller");
  const std::string& endpoint = clients.endpoints()[engine];
  try {
    EngineOutcome outcome =
        clients.Use(engine, [&](RpcClient& client) { return Participant(endpoint, reload, client).Run(params); });
    if (!outcome.ok) clients.Drop(engine);  // its connection may be the reason
    return outcome;
  } catch (const std::exception& error) {  // the endpoint is malformed, or there is no socket
    reload.staged.No({ErrorCode::kUnavailable, error.what()});
    return {.endpoint = endpoint, .error = ErrorOfCall(error)};
  }
}

// TakePart on a thread of its own. If there is none, that is a vote against the version: the others must not wait.
std::future<EngineOutcome> Begin(EngineClients& clients, std::size_t engine, const Json& params, JointReload& reload) {
  const std::string& endpoint = clients.endpoints()[engine];
  try {
    return std::async(std::launch::async, TakePart, std::ref(clients), engine, std::cref(params), std::ref(reload));
  } catch (const std::system_error& error) {
    reload.staged.No({ErrorCode::kResourceExhausted, NamingEngine(endpoint, error.what())});
    std::promise<EngineOutcome> failed;
    failed.set_value({.endpoint = endpoint, .error = ErrorOfCall(error)});
    return failed.get_future();
  }
}

}  // namespace

std::vector<EngineOutcome> ReloadTogether(EngineClients& clients, const Json& params,
                                          const std::optional<Version>& expected, std::chrono::milliseconds timeout,
                                          std::stop_token stop, ProgressWatch& watch, ReloadTrace* trace) {
  const std::size_t engines = clients.endpoints().size();
  JointReload reload(engines, expected, timeout, std::move(stop), trace);
  CheckDistinctAddresses(clients.endpoints(), reload.deadline);
  std::vector<std::future<EngineOutcome>> under_way;
  for (std::size_t engine = 0; engine < engines; ++engine) under_way.push_back(Begin(clients, engine, params, reload));
  return watch.Await(under_way);
}

}  // namespace layercast
