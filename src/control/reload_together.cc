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
struct Together {
  Together(std::size_t engines, const std::optional<Version>& expected, std::chrono::milliseconds timeout)
      : version(expected),
        staged(engines),
        prepared(engines),
        there(engines),
        engines_give_up(Deadline::After(TimeWithin(timeout))),
        deadline(Deadline::After(timeout)),
        last_vote(Deadline::After(timeout + kRenewal)) {}
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
  Participant(std::string endpoint, Together& together)
      : endpoint_(std::move(endpoint)), together_(together), client_("engine", endpoint_) {}

  EngineOutcome Run(Json params) {
    params["lease_ms"] = kLease.count();
    EngineOutcome staged = Call("stage_weights", params, together_.deadline);
    Cast(together_.staged, !staged.ok ? staged.error->what() : together_.version.Disagreement(staged_));
    if (!staged.ok) return staged;
    if (!Agreed(together_.staged)) return Cancelled(staged, together_.staged.why());
    EngineOutcome prepared = Call("prepare_weights", TicketParams(), together_.deadline);
    Cast(together_.prepared, prepared.ok ? "" : prepared.error->what());
    if (!prepared.ok) return prepared;
    if (!Agreed(together_.prepared)) return Cancelled(staged, together_.prepared.why());
    if (const std::optional<Error> gone = RenewLease()) {
      Cast(together_.there, gone->what());
      return {.endpoint = endpoint_, .error = gone};
    }
    Cast(together_.there, "");
    if (!Agreed(together_.there)) return Cancelled(staged, together_.there.why());
    return Call("commit_weights", TicketParams(), Deadline::After(kCommitTime));
  }

 private:
  void Cast(Vote& vote, const std::string& fault) const {
    if (fault.empty()) return vote.Yes();
    vote.No(NamingEngine(endpoint_, fault));
  }

  // The params of a call that is about what this participant has staged.
  Json TicketParams() const { return {{"ticket", ticket_}}; }

  // Returns what goes wrong instead of throwing it: the other participants wait for this one's vote.
  EngineOutcome Call(const std::string& method, const Json& params, Deadline deadline) {
    EngineOutcome outcome{.endpoint = endpoint_};
    try {
      answered_ = false;
      const Json answer = client_.Call(method, params, deadline);
      answered_ = true;
      outcome = OutcomeFromJson(endpoint_, answer);
      if (!outcome.ok && !outcome.error)
        outcome.error.emplace(ErrorCode::kCorrupt, method + " failed without an error");
      if (answer.contains("staged")) staged_ = VersionFromJson(answer["staged"]);
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
      if (together_.last_vote.Passed()) vote.No("not all engines were asked in time");
      KeepLeaseOrVoteNo(vote);
    }
  }

  // An engine that lets its version go is the fault, unless all engines' time is over: then the fault is with those
  // whose votes are still missing, which will come by the deadline.
  void KeepLeaseOrVoteNo(Vote& vote) {
    const std::optional<Error> gone = RenewLease();
    if (gone && !together_.engines_give_up.Passed()) Cast(vote, gone->what());
  }

  // Empty: the engine holds its version; else what is wrong.
  std::optional<Error> RenewLease() {
    try {
      client_.Call("hold_weights", TicketParams(), together_.deadline);
      return std::nullopt;
    } catch (const std::exception& error) {  // also what an unreadable answer throws
      return ErrorOfCall(error);
    }
  }

  // The engine says what it serves now. If it does not, it serves what it did when it had staged: nothing is committed.
  EngineOutcome Cancelled(const EngineOutcome& staged, const std::string& why) {
    Json params = TicketParams();
    params["reason"] = why;
    EngineOutcome outcome = Call("abort_weights", params, together_.deadline);
    if (!answered_) {
      outcome.version = outcome.previous = staged.version;
      outcome.report = staged.report;
    }
    outcome.ok = false;
    outcome.error.emplace(ErrorCode::kCancelled, "not committed, as on no other engine: " + why);
    return outcome;
  }

  const std::string endpoint_;
  Together& together_;
  RpcClient client_;
  bool answered_ = false;  // the last call was
  Version staged_;
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

EngineOutcome TakePart(const std::string& endpoint, const Json& params, Together& together) {
  NameThisThread("lc-controller");
  try {
    return Participant(endpoint, together).Run(params);
  } catch (const std::exception& error) {  // the endpoint is malformed, or there is no socket
    together.staged.No(error.what());
    return {.endpoint = endpoint, .error = ErrorOfCall(error)};
  }
}

// TakePart on a thread of its own. If there is none, that is a vote against the version: the others must not wait.
std::future<EngineOutcome> Begin(const std::string& endpoint, const Json& params, Together& together) {
  try {
    return std::async(std::launch::async, TakePart, endpoint, std::cref(params), std::ref(together));
  } catch (const std::system_error& error) {
    together.staged.No(NamingEngine(endpoint, error.what()));
    std::promise<EngineOutcome> failed;
    failed.set_value({.endpoint = endpoint, .error = ErrorOfCall(error)});
    return failed.get_future();
  }
}

}  // namespace

std::vector<EngineOutcome> ReloadTogether(const std::vector<std::string>& endpoints, const Json& params,
                                          const std::optional<Version>& expected, std::chrono::milliseconds timeout,
                                          ProgressWatch& watch) {
  Together together(endpoints.size(), expected, timeout);
  CheckDistinctAddresses(endpoints, together.deadline);
  std::vector<std::future<EngineOutcome>> under_way;
  for (const std::string& endpoint : endpoints) under_way.push_back(Begin(endpoint, params, together));
  return watch.Await(under_way);
}

}  // namespace layercast
