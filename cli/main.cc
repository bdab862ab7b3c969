// The program `layercast`: finds the subcommand, runs it, and turns what it throws into an exit status. Exit statuses
// are decided nowhere else.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/command_line.h"
#include "cli/arguments/open_files.h"
#include "cli/arguments/subcommand.h"
#include "cli/terminal/interrupted.h"
#include "cli/terminal/output.h"
#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/log_entry.h"
#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

enum ExitStatus { kDone = 0, kFailed = 1, kWrongUsage = 2 };

std::vector<std::unique_ptr<Subcommand>> MakeSubcommands() {
  std::vector<std::unique_ptr<Subcommand>> all;
  all.push_back(MakePublish());
  all.push_back(MakeServe());
  all.push_back(MakeReload());
  all.push_back(MakePromote());
  all.push_back(MakeRollback());
  all.push_back(MakeGenerate());
  all.push_back(MakeStatus());
  all.push_back(MakeVersions());
  all.push_back(MakeVerify());
  all.push_back(MakeAdapter());
  all.push_back(MakeSleep());
  all.push_back(MakeWakeUp());
  all.push_back(MakeExport());
  all.push_back(MakePlan());
  all.push_back(MakeProbe());
  all.push_back(MakeDoctor());
  all.push_back(MakeTop());
  all.push_back(MakeInspect());
  all.push_back(MakeModels());
  all.push_back(MakeKeygen());
  return all;
}

// Prints the error: one sentence for people and, for scripts, an object, unless one was printed already.
int Refuse(ExitStatus status, Output& output, const std::string& who, const Error& error) {
  const auto say = [&](const Error& what) {
    if (log::WritesJson()) return log::error("{}: {}", who, what.what());
    std::fprintf(stderr, "%s: %s\n", who.c_str(), EscapedMessage(what.what()).c_str());
  };
  say(error);
  if (!output.json() || output.printed()) return status;
  try {
    output.Print({{"error", ErrorToJson(error)}}, "");
  } catch (const Error& unsaid) {
    say(unsaid);
  }
  return status;
}

int Run(Subcommand& subcommand, Output& output) {
  const std::string who = std::string("layercast ") + subcommand.name();
  try {
    log::SetUp(subcommand.name());
    OnInterrupt([](int) { EndInterrupted("layercast: interrupted"); });
    subcommand.Run(output);
    return kDone;
  } catch (const UsageError& error) {
    return Refuse(kWrongUsage, output, who, Error(ErrorCode::kInvalidArgument, error.what()));
  } catch (const CLI::ParseError& error) {
    return Refuse(kWrongUsage, output, who, Error(ErrorCode::kInvalidArgument, error.what()));
  } catch (const Error& error) {
    return Refuse(kFailed, output, who, error);
  } catch (const std::bad_alloc&) {
    return Refuse(kFailed, output, who, Error(ErrorCode::kResourceExhausted, "out of memory"));
  } catch (const std::exception& error) {
    return Refuse(kFailed, output, who, Error(ErrorCode::kInternal, error.what()));
  }
}

// Answers --help and --version, which the library throws as if they were errors, and refuses real errors.
int AnswerOrRefuse(const CLI::App& app, const CLI::ParseError& error, std::span<char* const> arguments) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  // --json may stand behind the mistake, where the parser did not get to, so it is looked for here.
  Output output(std::ranges::find(arguments, std::string_view("--json")) != arguments.end());
  std::string who = "layercast";
  for (const CLI::App* named : app.get_subcommands()) who += " " + named->get_name();
  return Refuse(kWrongUsage, output, who,
                Error(ErrorCode::kInvalidArgument, Explain(app, error) + " (" + who + " --help says more)"));
}

int Main(std::span<char* const> arguments) {
  CLI::App app("Layercast moves new policy weights from an RL trainer into running inference engines.", "layercast");
  app.set_help_flag("-h,--help", "Prints this help");
  app.set_version_flag("--version", "layercast " LAYERCAST_VERSION, "Prints the version");
  app.require_subcommand(1);
  bool json = false;
  const std::vector<std::unique_ptr<Subcommand>> subcommands = MakeSubcommands();
  for (const auto& subcommand : subcommands) {
    CLI::App& declared = *app.add_subcommand(subcommand->name(), subcommand->description());
    declared.add_flag("--json", json, "One JSON object on standard output, and nothing else there");
    subcommand->Declare(declared);
    for (CLI::Option* option : declared.get_options([](const CLI::Option* one) { return one->get_type_size() > 0; })) {
      option->transform(GivenValue());  // which puts it before the option's own checks, and changes nothing
    }
  }
  try {
    app.parse(WordsOf(arguments, app));
  } catch (const CLI::ParseError& error) {
    return AnswerOrRefuse(app, error, arguments);
  }
  Output output(json);
  for (const auto& subcommand : subcommands) {
    if (app.got_subcommand(subcommand->name())) return Run(*subcommand, output);
  }
  return kWrongUsage;
}

}  // namespace
}  // namespace layercast::cli

int main(int argc, char** argv) {
  layercast::cli::RaiseOpenFileLimit();
  return layercast::cli::Main(std::span(argv, static_cast<std::size_t>(argc)));
}
