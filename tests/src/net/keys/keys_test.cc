#include "src/net/keys/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "layercast/error.h"
#include "src/net/keys/key_file.h"
#include "src/net/keys/key_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class KeysTest : public ::testing::Test {
 protected:
  std::string In(const std::string& name) const { return (folder_.path() / name).string(); }
  static std::string TextOf(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static unsigned ModeOf(const std::string& path) {
    struct stat found = {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 0777U;
  }
  TempFolder folder_;
};

TEST_F(KeysTest, AServersFolderHasAllThatWhoeverListensNeeds) {
  const PublicKey own = MakeServerFolder(In("server"));
  const Keys keys = Keys::From({.folder = In("server")});
  EXPECT_EQ(keys.client().public_key, own);
  EXPECT_EQ(keys.server_pair().public_key, keys.server());
  const AdmittedKeys admitted = keys.admitted();
  ASSERT_NE(admitted.Find(own), nullptr);
  EXPECT_EQ(admitted.Find(own)->roles, Roles::All());
  EXPECT_EQ(ModeOf(In("server")), 0700U);
  for (const char* secret : {"server/secret.key", "server/server.key", "server/clients"}) {
    EXPECT_EQ(ModeOf(In(secret)), 0600U) << secret;
  }
}

TEST_F(KeysTest, AClientsFolderTrustsItsServerAndCannotListen) {
  MakeServerFolder(In("server"));
  const PublicKey key = MakeClientFolder(In("client"), In("server"));
  const Keys client = Keys::From({.folder = In("client")});
  EXPECT_EQ(client.client().public_key, key);
  EXPECT_EQ(client.server(), Keys::From({.folder = In("server")}).server());
  EXPECT_THAT(ErrorOf([&] { client.server_pair(); }, ErrorCode::kNotFound), HasSubstr("client/server.key"));
}

TEST_F(KeysTest, NothingIsEverOverwritten) {
  MakeServerFolder(In("server"));
  const std::string before = TextOf(In("server/server.key"));
  EXPECT_THAT(ErrorOf([&] { MakeServerFolder(In("server")); }, ErrorCode::kInvalidArgument),
              HasSubstr("there already"));
  EXPECT_EQ(TextOf(In("server/server.key")), before);
  MakeJobSecret(In("job"));
  EXPECT_THAT(ErrorOf([&] { MakeJobSecret(In("job")); }, ErrorCode::kInvalidArgument), HasSubstr("there already"));
}

TEST_F(KeysTest, ASecretThatOthersCanReadIsRefusedAndNotShown) {
  MakeJobSecret(In("job"));
  const std::string text = TextOf(In("job"));
  const std::string secret = text.substr(text.find(' ') + 1, 64);
  for (const mode_t mode : {0640, 0604, 0620}) {
    ASSERT_EQ(::chmod(In("job").c_str(), mode), 0);
    const std::string error = ErrorOf([&] { Keys::From({.secret = In("job")}); }, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error, HasSubstr("chmod 600"));
    EXPECT_THAT(error, Not(HasSubstr(secret)));
  }
}

TEST_F(KeysTest, AFileOfAnotherKindIsRefusedAndItsBytesAreNotShown) {
  MakeServerFolder(In("server"));
  const std::string text = TextOf(In("server/server.key"));
  const std::string secret = text.substr(text.find(' ') + 1, 64);
  const std::string error =
      ErrorOf([&] { ReadSecretFile(In("server/server.key"), kClientSecret); }, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error, HasSubstr("layercast-client-secret-1"));
  EXPECT_THAT(error, Not(HasSubstr(secret)));
  std::ofstream(In("server/server.key"), std::ios::app) << "x";
  EXPECT_THAT(ErrorOf([&] { ReadSecretFile(In("server/server.key"), kServerSecret); }, ErrorCode::kInvalidArgument),
              Not(HasSubstr(secret)));
}

TEST_F(KeysTest, OneSecretMakesTheSameServerAndTheSameClientAtBothEnds) {
  MakeJobSecret(In("job"));
  std::filesystem::copy(In("job"), In("copy"));
  ASSERT_EQ(::chmod(In("copy").c_str(), 0600), 0);
  const Keys here = Keys::From({.secret = In("job")});
  const Keys there = Keys::From({.secret = In("copy")});
  EXPECT_EQ(there.server(), here.server_pair().public_key);
  EXPECT_NE(there.server(), there.client().public_key);
  ASSERT_NE(here.admitted().Find(there.client().public_key), nullptr);
  MakeJobSecret(In("other"));
  EXPECT_NE(Keys::From({.secret = In("other")}).server(), here.server());
}

TEST_F(KeysTest, TheEnvironmentStandsForWhatOptionsDoNotName) {
  MakeJobSecret(In("job"));
  MakeServerFolder(In("server"));
  ASSERT_EQ(::setenv("LAYERCAST_SECRET", In("job").c_str(), 1), 0);
  EXPECT_EQ(Keys::From({}).server(), Keys::From({.secret = In("job")}).server());
  EXPECT_NE(Keys::From({.folder = In("server")}).server(), Keys::From({}).server());
  EXPECT_FALSE(Keys::From({.insecure = true}).given());
  ASSERT_EQ(::setenv("LAYERCAST_KEYS", In("server").c_str(), 1), 0);
  EXPECT_THAT(ErrorOf([] { Keys::From({}); }, ErrorCode::kInvalidArgument), HasSubstr("LAYERCAST_SECRET"));
  ::unsetenv("LAYERCAST_KEYS");
  ::unsetenv("LAYERCAST_SECRET");
  EXPECT_FALSE(Keys::From({}).given());
  EXPECT_FALSE(Keys::From({}).may_leave_the_host());
  EXPECT_TRUE(Keys::From({.insecure = true}).may_leave_the_host());
  EXPECT_TRUE(Keys::From({.secret = In("job")}).may_leave_the_host());
}

TEST_F(KeysTest, OptionsThatContradictEachOtherAreRefused) {
  MakeJobSecret(In("job"));
  MakeServerFolder(In("server"));
  ErrorOf([&] { Keys::From({.folder = In("server"), .secret = In("job")}); }, ErrorCode::kInvalidArgument);
  ErrorOf([&] { Keys::From({.secret = In("job"), .insecure = true}); }, ErrorCode::kInvalidArgument);
  EXPECT_THAT(ErrorOf([&] { Keys::From({.folder = In("nowhere")}); }, ErrorCode::kNotFound), HasSubstr("nowhere"));
}

TEST_F(KeysTest, AKeyIsItsOwnText) {
  const KeyPair pair = RandomKeyPair();
  EXPECT_EQ(PublicOf(pair.secret_key), pair.public_key);
  EXPECT_EQ(KeyFromText(ToText(pair.public_key)), pair.public_key);
  EXPECT_EQ(ShortText(pair.public_key), ToText(pair.public_key).substr(0, 8) + "...");
  EXPECT_FALSE(KeyFromText(ToText(pair.public_key).substr(1)));
  EXPECT_FALSE(KeyFromText(std::string(64, 'g')));
}

}  // namespace
}  // namespace layercast::testing
