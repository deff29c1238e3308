package kafkatest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// pom names the broker and the binding that its logging wants.
const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>parley</groupId><artifactId>kafkatest</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.1</version></dependency>
  </dependencies>
</project>
`

const installJava = `tests with a real Kafka need Java 17 or newer and Maven. Install them with
	sudo apt-get install -y openjdk-17-jdk-headless maven
or name a Kafka that runs already: ` + AddressEnv + `=host:port`

// install gives the folder with the broker's jars. They are fetched once and
// kept in the folder that PARLEY_TEST_CACHE names, else in parley-test of the
// user's cache folder; what is there is named by what it was made from, so it
// never goes stale.
func install(ctx context.Context) (string, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is missing: %s", tool, installJava)
		}
	}
	sum := sha256.Sum256([]byte(pom))
	return once("kafka-"+hex.EncodeToString(sum[:8]), func(fresh string) error {
		if err := os.WriteFile(filepath.Join(fresh, "pom.xml"), []byte(pom), 0o600); err != nil {
			return err
		}
		mvn := exec.CommandContext(ctx, "mvn", "-B", "-ntp", "-q", "-Dmaven.repo.local="+filepath.Join(filepath.Dir(fresh), "maven"),
			"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(fresh, "libs"))
		mvn.Dir = fresh
		if out, err := mvn.CombinedOutput(); err != nil {
			return fmt.Errorf("mvn: %w; it needs a Maven repository once, and what it gets is kept\n%s", err, out)
		}
		return nil
	})
}

// once gives the folder called name of the cache; if it is not there, fill makes
// it. It is there whole or not at all, and two processes at once do no harm.
func once(name string, fill func(fresh string) error) (string, error) {
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(cache, "installing-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := fill(fresh); err != nil {
		return "", err
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, other := os.Stat(dir); other != nil {
			return "", errors.Join(err, other)
		}
		// Another process was faster.
	}
	return dir, nil
}

func cacheFolder() (string, error) {
	if dir := os.Getenv("PARLEY_TEST_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep downloads in: %w; set PARLEY_TEST_CACHE to one", err)
	}
	return filepath.Join(dir, "parley-test"), nil
}
