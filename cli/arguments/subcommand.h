// What a subcommand implements. To add one: a file that defines its class and its Make function, a declaration of that
// at the end here, a line in main.cc, and one in CMakeLists.txt. docs/cli.md says what scripts may rely on.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <stdexcept>
#include <string>

#include "cli/terminal/output.h"

namespace layercast::cli {

// Thrown for wrong usage that only Run can see: an address that does not parse, flags that exclude each other. The exit
// status is then 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Resource; main's thread only. Main builds all subcommands, lets each declare its flags, and runs the one that was
// named.
class Subcommand {
 public:
  virtual ~Subcommand() = default;
  virtual const char* name() const = 0;
  virtual const char* description() const = 0;  // one line of --help

  // Adds options that store into members. `--json` and `--help` exist already.
  virtual void Declare(CLI::App& app) = 0;
  // Does the work. If it returns, the exit status is 0. What it throws is written to standard error and, with --json,
  // also printed, unless an object was printed before; the exit status is then 2 for UsageError and CLI::ParseError,
  // and otherwise 1. SIGINT ends the program (interrupted.h); subcommands that run until they are ended handle it
  // themselves (end_signal.h).
  virtual void Run(Output& output) = 0;
};

std::unique_ptr<Subcommand> MakeAdapter();
std::unique_ptr<Subcommand> MakeDoctor();
std::unique_ptr<Subcommand> MakeExport();
std::unique_ptr<Subcommand> MakeGenerate();
std::unique_ptr<Subcommand> MakeInspect();
std::unique_ptr<Subcommand> MakeKeygen();
std::unique_ptr<Subcommand> MakeModels();
std::unique_ptr<Subcommand> MakePlan();
std::unique_ptr<Subcommand> MakeProbe();
std::unique_ptr<Subcommand> MakePromote();
std::unique_ptr<Subcommand> MakePublish();
std::unique_ptr<Subcommand> MakeReload();
std::unique_ptr<Subcommand> MakeRollback();
std::unique_ptr<Subcommand> MakeServe();
std::unique_ptr<Subcommand> MakeSleep();
std::unique_ptr<Subcommand> MakeStatus();
std::unique_ptr<Subcommand> MakeTop();
std::unique_ptr<Subcommand> MakeVerify();
std::unique_ptr<Subcommand> MakeVersions();
std::unique_ptr<Subcommand> MakeWakeUp();

}  // namespace layercast::cli
