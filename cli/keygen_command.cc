// layercast keygen: makes keys, a server's, a client's, a job's, or one to sign versions by. Prints what the server's
// list needs of them.
#include <filesystem>
#include <memory>
#include <string>

#include "cli/arguments/arguments.h"
#include "cli/arguments/subcommand.h"
#include "src/net/keys/admitted_keys.h"
#include "src/net/keys/key_folder.h"
#include "src/net/keys/signing_key.h"

namespace layercast::cli {
namespace {

class Keygen final : public Subcommand {
 public:
  const char* name() const override { return "keygen"; }
  const char* description() const override {
    return "Makes keys, by which publishers, engines and their clients know each other";
  }

  void Declare(CLI::App& app) override {
    CLI::Option* const folder = app.add_option("folder", folder_, "The folder to make");
    CLI::Option* const server =
        app.add_option("--server", server_,
                       "Makes a client's folder: server.public of the server's folder; by default it is a server's")
            ->needs(folder);
    app.add_option("--roles", roles_, "Of a client, for the line that is printed: read,generate,reload,publish")
        ->check(TakenBy([](const std::string& roles) { static_cast<void>(RolesOf(roles)); }, "ROLE,..."))
        ->needs(server)
        ->capture_default_str();
    app.add_option("--name", client_, "Of a client, for that line; by default the folder's name")->needs(server);
    CLI::Option* const secret =
        app.add_option("--secret", secret_, "Makes the secret of a job, this file, instead of a folder")
            ->excludes(folder);
    app.add_option("--sign", sign_,
                   "Makes a key to sign versions by, this file, instead of a folder; and its public half, FILE.public")
        ->excludes(folder)
        ->excludes(secret);
  }

  void Run(Output& output) override {
    if (folder_.empty() && secret_.empty() && sign_.empty()) {
      throw UsageError("keygen: expected a folder, --secret FILE or --sign FILE");
    }
    if (!sign_.empty()) return MakeSigning(output);
    if (!secret_.empty()) {
      MakeJobSecret(secret_);
      return output.Print({{"secret", AbsolutePath(secret_)}},
                          secret_ + ": give it to every process of the job (--secret), and to nobody else\n");
    }
    if (!server_.empty()) return MakeClient(output);
    const PublicKey key = MakeServerFolder(folder_);
    output.Print({{"folder", AbsolutePath(folder_)}, {"key", ToText(key)}},
                 folder_ +
                     ": for whoever listens (--keys). Clients need its server.public (keygen DIR --server), and "
                     "a line in its list, clients\n");
  }

 private:
  void MakeSigning(Output& output) const {
    const PublicKey key = MakeSigningKey(sign_);
    output.Print({{"sign", AbsolutePath(sign_)}, {"trust", AbsolutePath(sign_ + ".public")}, {"key", ToText(key)}},
                 sign_ + ": for whoever publishes (--sign). Engines need " + sign_ + ".public (--trust)\n");
  }

  // Throws what ParseClients throws.
  static Roles RolesOf(const std::string& text) {
    const PublicKey any{};
    return ParseClients(ToText(any) + " " + text + "\n", "--roles").at(any).roles;
  }

  void MakeClient(Output& output) const {
    const PublicKey key = MakeClientFolder(folder_, server_);
    const std::string name =
        client_.empty() ? std::filesystem::path(AbsolutePath(folder_)).filename().string() : client_;
    const std::string line = ClientLine(key, RolesOf(roles_), name);
    output.Print({{"folder", AbsolutePath(folder_)}, {"key", ToText(key)}, {"line", line}}, line + "\n");
  }

  std::string folder_;
  std::string server_;
  std::string roles_ = "read";
  std::string client_;
  std::string secret_;
  std::string sign_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeKeygen() { return std::make_unique<Keygen>(); }

}  // namespace layercast::cli
