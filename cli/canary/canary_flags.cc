#include "cli/canary/canary_flags.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>

#include "cli/arguments/arguments.h"
#include "cli/arguments/reload_outcomes.h"
#include "cli/arguments/subcommand.h"
#include "cli/canary/check_command.h"
#include "cli/canary/logprob_check.h"
#include "cli/terminal/end_signal.h"
#include "src/base/deadline.h"
#include "src/base/threads/thread_name.h"
#include "src/control/engine_outcome.h"
#include "src/net/wake_up.h"

namespace layercast::cli {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kLook{200};
// How much later than this program the canaries give up.
constexpr Milliseconds kToDecide{10'000};

// Runs it on a thread of its own, and cancels it if a signal comes meanwhile. Throws what it throws.
void RunOrCancel(EndSignal& end, const std::function<void()>& run, const std::function<void()>& cancel) {
  WakeUp done;
  std::future<void> under_way = std::async(std::launch::async, [&] {
    NameThisThread("lc-canary");
    const WakeUp::RingAtExit ring(done);
    run();
  });
  if (end.WaitOr(done)) cancel();
  under_way.get();
}

// Why the version is not to be promoted; nullopt: it is. Somebody else's word counts as well as the command's.
std::optional<Error> Judge(CanaryReload& canary, CheckCommand* check, const Deadline& deadline, EndSignal& end) {
  while (true) {
    if (const std::optional<bool> said = canary.Await(Milliseconds(0))) {
      if (*said) return std::nullopt;
      return Error(ErrorCode::kCancelled, "a canary was rolled back, or took another version");
    }
    if (const auto ended = check != nullptr ? check->Ended() : std::nullopt) {
      if (ended->empty()) return std::nullopt;
      return Error(ErrorCode::kFailedPrecondition, "the check failed: " + *ended);
    }
    if (deadline.Passed()) return Error(ErrorCode::kDeadlineExceeded, "there was no verdict in time");
    if (end.WaitUpTo(kLook)) return Error(ErrorCode::kCancelled, "layercast reload was ended by a signal");
  }
}

// A canary that does not answer is a verdict too.
std::optional<Error> Compared(const std::function<std::optional<Error>()>& compare) {
  try {
    return compare();
  } catch (const Error& error) {
    return error;
  }
}

// A canary that is gone is a verdict too.
std::optional<Error> JudgeOrFail(CanaryReload& canary, CheckCommand* check, const Deadline& deadline, EndSignal& end) {
  try {
    return Judge(canary, check, deadline, end);
  } catch (const Error& error) {
    return error;
  }
}

// Why a version that was promoted is not served by all; nullopt: it is. The engines that were told of another's failure
// come after that.
std::optional<Error> NotTaken(const std::vector<EngineOutcome>& outcomes) {
  std::optional<Error> why;
  for (const EngineOutcome& outcome : outcomes) {
    if (outcome.ok) continue;
    if (!why || why->code() == ErrorCode::kCancelled) {
      why.emplace(outcome.error->code(),
                  "not all engines took it: " + NamingEngine(outcome.endpoint, outcome.error->what()));
    }
  }
  return why;
}

}  // namespace

void CanaryFlags::Declare(CLI::App& app) {
  CLI::Option* const canary =
      DeclareList(app, "--canary", canaries_,
                  "Endpoints, of --engine, that take the version first, on trial; the others once it is promoted")
          ->check(EachOf(Endpoint()));
  CLI::Option* const check =
      app.add_option("--check", check_, "A shell's command that judges the version; it is promoted on exit status 0")
          ->needs(canary);
  CLI::Option* const prompts = app.add_option("--check-logprobs", prompts_,
                                              "A file of prompts, one a line (3,11,4): promoted if the mean "
                                              "log-probability of a canary's answers is near "
                                              "what it was")
                                   ->needs(canary)
                                   ->excludes(check);
  CLI::Option* const difference =
      app.add_option("--max-difference", max_difference_, "Of --check-logprobs: how far from it that may be")
          ->check(Number(0))
          ->needs(prompts);
  prompts->needs(difference);
  app.add_flag("--wait-promote", wait_, "Waits for layercast promote, or layercast rollback --canary")
      ->needs(canary)
      ->excludes(check)
      ->excludes(prompts);
  app.add_option("--trial", trial_, "Seconds until a version that nobody has promoted is rolled back")
      ->check(Number(0))
      ->needs(canary)
      ->capture_default_str();
}

void CanaryFlags::Run(Output& output, const std::vector<std::string>& engines, const KeyOptions& keys,
                      const ReloadRequest& reload) const {
  if (check_.empty() && prompts_.empty() && !wait_) {
    throw UsageError("--canary: expected --check, --check-logprobs or --wait-promote, got none");
  }
  if (reload.all_or_none) throw UsageError("--canary: expected no --all-or-none, which holds for all but the canaries");
  EndSignal end;
  Controller controller(engines, keys);
  const Milliseconds patience(std::llround(1000 * trial_));
  std::optional<LogprobCheck> logprobs;
  if (!prompts_.empty()) logprobs.emplace(prompts_, max_difference_);
  Controller first({canaries_.front()}, keys);
  const auto measure = [&] {
    double mean = 0;
    RunOrCancel(end, [&] { mean = logprobs->MeanOf(first); }, [&] { first.Cancel(); });
    return mean;
  };
  const double before = logprobs ? measure() : 0;
  const CanaryRequest request{.canaries = canaries_, .reload = reload, .trial = patience + kToDecide};
  std::optional<CanaryReload> canary;
  RunOrCancel(end, [&] { canary.emplace(controller.Canary(request)); }, [&] { controller.Cancel(); });
  CanaryVerdict verdict{.version = canary->version(), .canaries = canaries_, .against = {}};
  {
    const Deadline deadline = Deadline::After(patience);
    std::optional<CheckCommand> check;
    const std::map<std::string, std::string> told = {
        {"LAYERCAST_CANARY", WithCommas(canaries_)},
        {"LAYERCAST_OTHERS", WithCommas(canary->others())},
        {"LAYERCAST_VERSION",
         verdict.version.lineage + "@" + std::to_string(verdict.version.step) + ":" + verdict.version.digest.ToHex()}};
    if (!check_.empty()) check.emplace(check_, told);
    verdict.against = logprobs ? Compared([&] { return logprobs->Against(before, measure()); })
                               : JudgeOrFail(*canary, check ? &*check : nullptr, deadline, end);
  }
  std::vector<EngineOutcome> outcomes;
  if (verdict.against) {
    outcomes = canary->RollBack();
  } else {
    RunOrCancel(end, [&] { outcomes = canary->Promote(); }, [&] { canary->Cancel(); });
    verdict.against = NotTaken(outcomes);
  }
  PrintOutcomes(output, outcomes, verdict);
}

}  // namespace layercast::cli
