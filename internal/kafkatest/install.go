package kafkatest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/parley-project/parley/internal/testcache"
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

// install gives the folder with the broker's jars. They are fetched once.
func install(ctx context.Context) (string, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is missing: %s", tool, installJava)
		}
	}
	return testcache.Once("kafka-"+testcache.Digest([]byte(pom)), func(fresh string) error {
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
