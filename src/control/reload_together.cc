#include "src/control/reload_together.h"

#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "src/base/thread_name.h"
#include "src/control/endpoint.h"
#include "src/control/engine_outcome.h"
#include "src/control/rpc.h"
#include "src/control/vote.h"

namespace layercast {
namespace {

// An engine lets go of a version that nobody speaks for that long.
constexpr std::chrono::milliseconds kLease{10'000};
constexpr std::chrono::milliseconds kRenewal{1'000};

// What all engines have staged is one version.
class StagedVersion {
 public:
  explicit StagedVersion(std::optional<Version> expected) : expected_(std::move(expected)) {}

  // What is wrong with it, or nothing: it is another than the first one's, or than the one asked for.
  std::string Add(const Version& staged) {
    const std::lock_guard lock(mutex_);
    if (!expected_ || !expected_->digest) expected_ = staged;
    if (expected_->digest == staged.digest) return "";
    return "staged " + staged.ToString() + ", expected " + expected_->ToString();
  }

 private:
  std::mutex mutex_;
  std::optional<Version> expected_;  // guarded by mutex_
};

struct Together {
  explicit Together(std::size_t engines, const std::optional<Version>& expected)
      : version(expected), staged(engines), prepared(engines) {}
  StagedVersion version;
  Vote staged;
  Vote prepared;
};

// One engine's way through the calls; on a thread of its own.
class Participant {
 public:
  Participant(std::string endpoint, Together& together, std::chrono::milliseconds timeout)
      : endpoint_(std::move(endpoint)),
        together_(together),
        deadline_(Deadline::After(timeout + kEngineGrace)),
        client_("engine", endpoint_) {}

  EngineOutcome Run(Json params) {
    params["lease_ms"] = kLease.count();
    EngineOutcome staged = Call("stage_weights", params);
    Cast(together_.staged, !staged.ok ? staged.error->what() : together_.version.Add(staged_));
    if (!staged.ok) return staged;
    if (!Agreed(together_.staged)) return Cancelled(staged, together_.staged.why());
    EngineOutcome prepared = Call("prepare_weights", Json::object());
    Cast(together_.prepared, prepared.ok ? "" : prepared.error->what());
    if (!prepared.ok) return prepared;
    if (!Agreed(together_.prepared)) return Cancelled(staged, together_.prepared.why());
    return Call("commit_weights", Json::object());
  }

 private:
  void Cast(Vote& vote, const std::string& fault) const {
    if (fault.empty()) return vote.Yes();
    vote.No(NamingEngine(endpoint_, fault));
  }

  // Never throws: the others wait for this engine's vote.
  EngineOutcome Call(const std::string& method, const Json& params) {
    EngineOutcome outcome{.endpoint = endpoint_};
    try {
      const Json answer = client_.Call(method, params, deadline_);
      outcome = OutcomeFromJson(endpoint_, answer);
      if (!outcome.ok && !outcome.error)
        outcome.error.emplace(ErrorCode::kCorrupt, method + " failed without an error");
      if (answer.contains("staged")) staged_ = VersionFromJson(answer["staged"]);
    } catch (const Error& error) {
      outcome.ok = false;
      outcome.error = error;
    } catch (const Json::exception& error) {
      outcome.ok = false;
      outcome.error.emplace(ErrorCode::kCorrupt, "engine " + endpoint_ + ": " + method + ": " + error.what());
    }
    return outcome;
  }

  // Holds the version meanwhile.
  bool Agreed(Vote& vote) {
    while (true) {
      if (const std::optional<bool> decided = vote.AwaitFor(kRenewal)) return *decided;
      try {
        client_.Call("hold_weights", Json::object(), deadline_);
      } catch (const std::exception& error) {  // also of an answer that is none
        Cast(vote, error.what());
      }
    }
  }

  EngineOutcome Cancelled(EngineOutcome outcome, const std::string& why) {
    const EngineOutcome aborted = Call("abort_weights", {{"reason", why}});
    if (aborted.version) outcome.version = aborted.version;
    outcome.ok = false;
    outcome.error.emplace(ErrorCode::kCancelled, "not committed, as on no other engine: " + why);
    return outcome;
  }

  const std::string endpoint_;
  Together& together_;
  const Deadline deadline_;
  RpcClient client_;
  Version staged_;
};

// What is no endpoint becomes that engine's own error later.
std::string AddressOf(const std::string& endpoint, Deadline deadline) {
  try {
    return ByAddress(endpoint, deadline);
  } catch (const Error&) {
    return endpoint;
  }
}

// One that is there under two names would wait for itself: it stages one version after the other, and holds the first
// until the second is staged.
void CheckDistinct(const std::vector<std::string>& endpoints, Deadline deadline) {
  std::map<std::string, std::string> by_address;
  for (const std::string& endpoint : endpoints) {
    const auto [first, is_new] = by_address.emplace(AddressOf(endpoint, deadline), endpoint);
    if (is_new) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "engine " + endpoint + " is engine " + first->second + ": expected each of them once");
  }
}

}  // namespace

std::vector<EngineOutcome> ReloadTogether(const std::vector<std::string>& endpoints, const Json& params,
                                          const std::optional<Version>& expected, std::chrono::milliseconds timeout) {
  CheckDistinct(endpoints, Deadline::After(timeout));
  Together together(endpoints.size(), expected);
  std::vector<std::future<EngineOutcome>> under_way;
  for (const std::string& endpoint : endpoints) {
    under_way.push_back(std::async(std::launch::async, [&, endpoint]() -> EngineOutcome {
      NameThisThread("lc-controller");
      try {
        return Participant(endpoint, together, timeout).Run(params);
      } catch (const Error& error) {  // an endpoint that is none
        together.staged.No(error.what());
        return {.endpoint = endpoint, .error = error};
      }
    }));
  }
  std::vector<EngineOutcome> outcomes;
  for (auto& outcome : under_way) outcomes.push_back(outcome.get());
  return outcomes;
}

}  // namespace layercast
