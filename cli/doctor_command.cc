// layercast doctor: what this machine has, how fast it is at what a sync does, and what would make the next one fast.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/subcommand.h"
#include "cli/doctor/advice.h"
#include "cli/doctor/findings.h"
#include "cli/doctor/machine.h"
#include "cli/doctor/measurement.h"
#include "cli/doctor/seen_peers.h"
#include "cli/terminal/wrapped.h"
#include "src/tensor/kernels/instruction_set.h"
#include "src/transport/all/library_versions.h"

namespace layercast::cli {
namespace {

constexpr std::size_t kMostThreads = 16;  // more copy no faster than memory is
constexpr std::chrono::milliseconds kMeasuring{60'000};

void Append(std::vector<Advice> more, std::vector<Advice>& advice) {
  std::ranges::move(more, std::back_inserter(advice));
}

class Doctor final : public Subcommand {
 public:
  const char* name() const override { return "doctor"; }
  const char* description() const override {
    return "Says what this machine has, and what would make the next sync fast";
  }

  void Declare(CLI::App& app) override {
    app.add_option("--publisher", publisher_, "Also looks at this publisher from here")->check(Endpoint());
    app.add_option("--engine", engine_, "Also looks at this engine from here")->check(Endpoint());
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    Findings found = Look();
    std::vector<std::string> failures;
    for (const Advice& each : found.advice) {
      if (each.fails) failures.push_back(each.text + (each.command.empty() ? "" : " Try: " + each.command));
    }
    const Json report = FindingsJson(found);
    if (failures.empty()) return output.Print(report, Wrapped(FindingsText(found)));
    output.PrintAndThrow(report, Wrapped(FindingsText(found)), ErrorCode::kFailedPrecondition, failures);
  }

 private:
  // Peers come first: what they are waited for is the command's time, and measuring has its own.
  Findings Look() const {
    const Keys keys = keys_.keys();
    Findings found{.machine = ReadMachine(), .instruction_set = InstructionSet(), .libraries = ChannelLibraries()};
    if (!publisher_.empty()) found.publisher = LookAtPublisher(publisher_, keys, Patience());
    if (!engine_.empty()) found.engine = LookAtEngine(engine_, keys, Patience());
    const std::size_t threads = std::clamp<std::size_t>(found.machine.cpus.size(), 1, kMostThreads);
    found.measured = Measure(threads, Deadline::After(kMeasuring));
    Append(AdviceOn(found.machine, found.instruction_set), found.advice);
    Append(AdviceOnOwnChannels(found.measured.channels), found.advice);
    if (found.publisher) Append(AdviceOn(*found.publisher), found.advice);
    if (found.engine) Append(AdviceOn(*found.engine), found.advice);
    return found;
  }

  // With one peer. One that does not know this key would be waited for much longer: it may learn it.
  Deadline Patience() const { return timeout_.deadline().AtMost(std::chrono::seconds(30)); }

  std::string publisher_;
  std::string engine_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeDoctor() { return std::make_unique<Doctor>(); }

}  // namespace layercast::cli
