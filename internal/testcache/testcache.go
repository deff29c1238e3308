// Package testcache keeps what tests want and do not make themselves, such as
// brokers, databases and other people's libraries: fetched once, outside of the
// tree. What is kept is named by what it was made from, so it never goes stale.
// Only tests and their tools use it.
package testcache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Env names the folder in which everything is kept; without it that is parley-test
// in the user's cache folder.
const Env = "PARLEY_TEST_CACHE"

// Folder gives the absolute path of that folder. It need not be there yet.
func Folder() (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep downloads in: %w; set %s to one", err, Env)
	}
	return filepath.Join(dir, "parley-test"), nil
}

// Once gives the folder called name in [Folder]; if it is not there, fill makes it,
// as [OnceIn] says.
func Once(name string, fill func(fresh string) error) (string, error) {
	cache, err := Folder()
	if err != nil {
		return "", err
	}
	return OnceIn(cache, name, fill)
}

// OnceIn gives the folder called name in home. If it is not there, fill puts into a
// fresh folder beside it what is to be kept. It is there whole or not at all, and
// of several processes one fills it while the others wait for it. Everybody may
// look into it who may look into home.
func OnceIn(home, name string, fill func(fresh string) error) (string, error) {
	dir := filepath.Join(home, name)
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fresh, err := os.MkdirTemp(home, "installing-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := fill(fresh); err != nil {
		return "", err
	}
	return dir, errors.Join(os.Chmod(fresh, 0o755), os.Rename(fresh, dir)) //nolint:gosec // nothing in it is secret
}

// Program builds the program of a package, which is given by its import path or from
// the working folder, without cgo, and gives its file. That belongs to the checkout:
// nothing is compiled or linked anew when nothing changed. However many want it at
// once, in one process or in several, one builds and the others wait: each of them
// would compile all that a cold cache has not, down to SQLite.
func Program(ctx context.Context, pkg string) (string, error) {
	cache, err := Folder()
	if err != nil {
		return "", err
	}
	module, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.ImportPath}} {{.Module.Dir}}", pkg).Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w", pkg, err)
	}
	dir := filepath.Join(cache, "program-"+Digest(bytes.TrimSpace(module)))
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // nothing in it is secret
		return "", err
	}
	unlock, err := lock(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	file := filepath.Join(dir, "program")
	build := exec.CommandContext(ctx, "go", "build", "-o", file, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return file, nil
}

// lock waits until nobody else has the lock of a file. The end of the process gives
// it up, too.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// Digest is a short name of what something is made from.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
