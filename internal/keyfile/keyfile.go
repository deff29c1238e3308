// Package keyfile makes the files that keep keys on a machine.
package keyfile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// Create writes text to file, with mode 0600, unless there is a file of that name,
// which is no error: of several processes that call it at the same time one makes the
// file, and all of them read it after that. When Create returns, the file is durable
// and whole; it never replaces one, since a lost key is lost for good. On a file system
// without hard links who comes second may find it half written for a moment.
//
// The folder must be there.
func Create(file string, text []byte) error { return create(file, text, os.Link) }

func create(file string, text []byte, link func(from, to string) error) (err error) {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, ".key-*") // CreateTemp's mode is 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	if err := write(f, text); err != nil {
		return err
	}
	// A link fails if the name is taken, unlike a rename.
	err = link(f.Name(), file)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) { // no hard links here, as on FAT
		err = createPlain(file, text)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(dir)
}

// createPlain writes the file under its name.
func createPlain(file string, text []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := write(f, text); err != nil {
		return errors.Join(err, os.Remove(file)) // half a key opens nothing
	}
	return nil
}

// write writes text, makes it durable and closes f.
func write(f *os.File, text []byte) error {
	_, err := f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the names in dir durable: what a key has sealed may be committed
// somewhere else right after.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // which refuses to flush a folder
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
