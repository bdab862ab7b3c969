// A rank process that does as its calls say: what the tests of the parent's side start instead of layercast-rank.
//
// `echo` answers its parameters and the rank. `fail`, `die`, `hang` (over that call), `stop` (over everything) and
// `close_link` (and live on) name the ranks that do so; the others answer. Reloads are of dummy weights, whose seed is
// the version's step; `fails_in` names the phase in which all ranks fail as on corrupt bytes, and `dies_in` that in
// which they die; with `fails_on`, that rank alone, and the others go on until they are told to give the attempt up,
// and then fail with the code `gives_up_with`. `says` has what each rank says of its progress as it stages. A step
// gives each sequence the token after its last one, and as log-probability the number of tokens that were fed; one
// token kills the rank, and after another none can be picked. `compare` with `held` says so at the gate, answers
// nothing until it is cancelled, and until then `digests` fails. With a folder as --model that has the pipes `asked`
// and `go`, a step says that it was asked for and waits for leave (step_gate.h).
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "engine_side/server/group/engine_options.h"
#include "engine_side/server/group/json_stream.h"
#include "layercast/report.h"

namespace {

using layercast::Json;

constexpr int kDeadlyToken = 666;
constexpr int kBrokenToken = 777;

class ScriptedRank {
 public:
  explicit ScriptedRank(const std::map<std::string, std::string>& flags)
      : rank_(std::stoi(flags.at("--tp-rank"))),
        link_(std::stoi(flags.at("--link-fd"))),
        stream_(layercast::UniqueFd(link_)) {
    if (const auto memory = flags.find("--weights-fd"); memory != flags.end()) memory_ = std::stoi(memory->second);
    const auto options = flags.find("--options");
    if (options == flags.end()) return;
    const std::string model = layercast::EngineOptionsFrom(options->second).model;
    if (model.empty()) return;
    asked_ = ::open((model + "/asked").c_str(), O_RDWR | O_CLOEXEC);
    go_ = ::open((model + "/go").c_str(), O_RDWR | O_CLOEXEC);
  }

  void Run() {
    while (true) {
      pollfd waits[] = {{link_, POLLIN, 0}, {steps_.empty() ? -1 : go_, POLLIN, 0}};
      ::poll(waits, 2, -1);
      if ((waits[1].revents & POLLIN) != 0) AnswerStep();
      if (waits[0].revents == 0) continue;
      const std::optional<Json> message = stream_.Receive();
      if (!message || !Take(*message)) return;
    }
  }

 private:
  bool Take(const Json& message) {
    if (message.contains("ping")) return stream_.Send({{"pong", 1}});
    const std::string method = message["method"];
    if (method == "end") return false;
    if (method == "step") return TakeStep(message);
    const Json& params = message["params"];
    if (method == "cancel") return GiveUp(message);
    if (method == "digests" && !comparison_.is_null()) return Fail(message, "internal");
    if (method == "digests") return Answer(message, ReportOf(Served().now));
    if (method == "roll_back") return RollBack(message);
    if (method == "staged") return Answer(message, staged_);
    if (method == "export") return Answer(message, {{"files", Json::array()}, {"tensors", 0}, {"bytes", 0}});
    if (method == "compare" && params.contains("held")) return HoldComparison(message);
    if (method == "compare")
      return Answer(message,
                    {{"tensors", 0}, {"bytes", 0}, {"differences", Json::array()}, {"config_changes", Json::array()}});
    if (method == "lend") return Answer(message, {{"endpoint", "tcp://127.0.0.1:1"}});
    if (method == "stage" || method == "prepare" || method == "commit" || method == "verify" || method == "abort") {
      return TakePhase(message, method);
    }
    const bool mine = params.contains("ranks") && std::ranges::count(params["ranks"], Json(rank_)) != 0;
    if (method == "die" && mine) ::_exit(1);
    if (method == "hang" && mine) return true;
    if (method == "stop" && mine) ::raise(SIGSTOP);
    if (method == "close_link" && mine) CloseLinkAndLiveOn();
    if (method == "fail" && mine) return Fail(message);
    return Answer(message, {{"rank", rank_}, {"params", params}});
  }

  [[noreturn]] void CloseLinkAndLiveOn() {
    stream_.Shutdown();
    for (;;) ::pause();
  }

  bool TakePhase(const Json& message, const std::string& method) {
    if (method == "stage") reload_ = message["params"];
    if (method == "stage" && reload_.contains("says")) SayProgress(reload_["says"].at(static_cast<std::size_t>(rank_)));
    if (reload_.value("dies_in", std::string()) == method) ::_exit(1);
    if (reload_.value("holds_in", std::string()) == method) return ::write(asked_, "?", 1) == 1;  // and never answers
    if (reload_.value("fails_in", std::string()) == method) {
      if (reload_.value("fails_on", rank_) == rank_) return Fail(message, reload_.value("fails_with", "corrupt"));
      given_up_ = message;
      return true;
    }
    if (method == "verify" && !committed_) return Fail(message, "failed_precondition");
    const std::uint64_t step = reload_.value("seed", std::uint64_t{0});
    if (method == "commit") Commit(step);
    staged_ = method == "stage" || (staged_ && method == "prepare");
    if (method == "verify") return Answer(message, ReportOf(step));
    const bool answered = Answer(message, {{"report", ReportOf(step)}});
    if (reload_.value("dies_after", std::string()) == method) ::_exit(1);
    return answered;
  }

  void SayProgress(Json progress) {
    progress["attempt"] = reload_["attempt"];
    stream_.Send({{"progress", progress}});
  }

  // What a rank's memory holds outlives its process: the steps of the version served now and of the one before.
  struct Versions {
    std::uint64_t now = 0;
    std::uint64_t before = 0;
  };
  Versions Served() const {
    Versions served;
    static_cast<void>(::pread(memory_, &served, sizeof(served), 0));
    return served;
  }
  void Serve(const Versions& served) const {
    if (::pwrite(memory_, &served, sizeof(served), 0) != sizeof(served)) ::_exit(1);
  }
  void Commit(std::uint64_t step) {
    Serve({.now = step, .before = Served().now});
    committed_ = true;
  }
  // Puts back what this process's commit has replaced, if it has.
  bool RollBack(const Json& message) {
    if (committed_ && Served().now == reload_["seed"]) Serve({.now = Served().before, .before = 0});
    return Answer(message, {{"whole", true}});
  }

  static Json ReportOf(std::uint64_t step) {
    layercast::ReloadReport report;
    report.version.step = step;
    report.served_digest.low = step;
    Json json = Json::parse(report.ToJson());
    json["pid"] = ::getpid();
    return json;
  }

  bool Answer(const Json& message, const Json& result) {
    return stream_.Send({{"id", message["id"]}, {"result", result}});
  }

  bool HoldComparison(const Json& message) {
    comparison_ = message;
    return ::write(asked_, "?", 1) == 1;
  }

  // What was under way is answered, if it is of that attempt or comparison.
  bool GiveUp(const Json& message) {
    if (message["params"].contains("comparison")) {
      if (comparison_["params"]["comparison"] == message["params"]["comparison"]) {
        Fail(comparison_, "cancelled");
        comparison_ = nullptr;
      }
      return Answer(message, Json::object());
    }
    if (!given_up_.is_null() && reload_["attempt"] == message["params"]["attempt"]) {
      const Json error = {{"code", reload_["gives_up_with"]}, {"message", "it was given up"}};
      const Json report = Json::parse(layercast::ReloadReport().ToJson());
      stream_.Send({{"id", given_up_["id"]}, {"result", {{"report", report}, {"error", error}}}});
      given_up_ = nullptr;
    }
    return Answer(message, Json::object());
  }

  bool Fail(const Json& message, const std::string& code = "corrupt") {
    return stream_.Send({{"id", message["id"]}, {"error", {{"code", code}, {"message", "it was to fail"}}}});
  }

  bool TakeStep(const Json& message) {
    for (const Json& step : message["params"]["steps"]) {
      if (std::ranges::count(step["tokens"], Json(kDeadlyToken)) != 0) ::_exit(1);
    }
    steps_.push_back(message);
    if (go_ < 0) return AnswerStep();
    return ::write(asked_, "?", 1) == 1;
  }

  bool AnswerStep() {
    char leave = 0;
    if (go_ >= 0 && ::read(go_, &leave, 1) != 1) return false;
    const Json message = std::move(steps_.front());
    steps_.pop_front();
    Json picked = Json::array();
    for (const Json& step : message["params"]["steps"]) picked.push_back(Pick(step["tokens"]));
    return Answer(message, {{"picked", picked}});
  }

  static Json Pick(const Json& tokens) {
    const auto last = tokens.back().get<std::int32_t>();
    if (last == kBrokenToken) return {{"error", {{"code", "corrupt"}, {"message", "a broken logit"}}}};
    return {{"token", last + 1}, {"logprob", tokens.size()}};
  }

  const int rank_;
  const int link_;
  layercast::JsonStream stream_;
  Json reload_ = Json::object();  // what the latest one was asked for
  Json given_up_;                 // the call of it that waits to be
  Json comparison_;               // the call that is held
  bool staged_ = false;
  bool committed_ = false;  // by this process
  int memory_ = -1;
  int asked_ = -1;
  int go_ = -1;
  std::deque<Json> steps_;  // that wait for leave
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  ScriptedRank(flags).Run();
  return 0;
}
