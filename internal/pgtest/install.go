package pgtest

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/parley-project/parley/internal/testcache"
)

// version is that of the Maven artifact, which is PostgreSQL's own with a zero
// behind it.
const version = "17.6.0"

// nobody owns the servers when we are root: PostgreSQL refuses to run as root.
const nobody = 65534

const aptLine = "sudo apt-get install -y openjdk-17-jdk-headless maven xz-utils"

// owner is the uid under which servers run.
func owner() int {
	if os.Geteuid() == 0 {
		return nobody
	}
	return os.Geteuid()
}

// install gives the folder with bin, lib and share of PostgreSQL. What is not
// there is fetched and unpacked, by one process at a time.
func install(ctx context.Context) (string, error) {
	cache, err := testcache.Folder()
	if err != nil {
		return "", err
	}
	artifact, err := artifactName()
	if err != nil {
		return "", err
	}
	home := cache
	if !open(cache) {
		// The servers' user may not look into the cache of root.
		home = filepath.Join(os.TempDir(), "parley-test-root")
	}
	if err := ownFolder(home); err != nil {
		return "", err
	}
	return testcache.OnceIn(home, artifact+"-"+version, func(fresh string) error {
		jars, err := os.MkdirTemp(home, "fetching-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(jars) }()
		if err := fetch(ctx, artifact, filepath.Join(cache, "maven"), jars); err != nil {
			return err
		}
		return unpack(ctx, filepath.Join(jars, artifact+"-"+version+".jar"), fresh)
	})
}

func artifactName() (string, error) {
	arch := map[string]string{"linux/amd64": "linux-amd64", "linux/arm64": "linux-arm64v8"}[runtime.GOOS+"/"+runtime.GOARCH]
	if arch == "" {
		return "", fmt.Errorf("no PostgreSQL is known for %s/%s: set PARLEY_TEST_POSTGRES to the URL of one that is running", runtime.GOOS, runtime.GOARCH)
	}
	return "embedded-postgres-binaries-" + arch, nil
}

// open reports whether the servers' user can get to a folder.
func open(dir string) bool {
	if owner() == os.Geteuid() {
		return true
	}
	for {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&1 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// ownFolder makes a folder that is ours, or refuses one of somebody else: what
// is in it will be executed.
func ownFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || !info.IsDir() || info.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("%s belongs to somebody else: set PARLEY_TEST_CACHE to a folder of your own", dir)
	}
	return nil
}

// fetch has Maven put the artifact's jar into dir.
func fetch(ctx context.Context, artifact, repository, dir string) error {
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("the tests with PostgreSQL need Maven to fetch it: %s, or set PARLEY_TEST_POSTGRES to the URL of one that is running", aptLine)
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	out, err := exec.CommandContext(ctx, "mvn", "-q", "-B", "-ntp", "-Dmaven.repo.local="+repository, "dependency:copy",
		"-Dartifact=io.zonky.test.postgres:"+artifact+":"+version, "-DoutputDirectory="+dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mvn dependency:copy of %s: %w; it needs a Maven repository once, and what it gets is kept\n%s", artifact, err, out)
	}
	return nil
}

// unpack puts the archive in the jar into dir.
func unpack(ctx context.Context, jar, dir string) error {
	if _, err := exec.LookPath("xz"); err != nil {
		return fmt.Errorf("xz is missing to unpack PostgreSQL: %s", aptLine)
	}
	files, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer files.Close()
	for _, f := range files.File {
		if !strings.HasSuffix(f.Name, ".txz") {
			continue
		}
		archive, err := f.Open()
		if err != nil {
			return err
		}
		defer archive.Close()
		tar := exec.CommandContext(ctx, "tar", "-xJ", "--no-same-owner", "-C", dir)
		tar.Stdin = io.Reader(archive)
		if out, err := tar.CombinedOutput(); err != nil {
			return fmt.Errorf("unpacking %s: %w\n%s", jar, err, out)
		}
		return nil
	}
	return fmt.Errorf("there is no archive in %s", jar)
}
