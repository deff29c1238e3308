// Package files keeps objects as files of a folder, one folder for each of the
// first two digits of their names.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/parley-project/parley/internal/keyfile"
	"github.com/parley-project/parley/internal/values"
)

// unfinished begins the names of files that are being written; one that is older
// than abandoned is nobody's any more.
const (
	unfinished = ".new-"
	abandoned  = 24 * time.Hour
)

// Store is a folder of objects. Several processes may share it.
type Store struct {
	dir string
	// kept has the folders whose names are known to be on the disk.
	kept sync.Map
}

// Open gives the store of a folder, which is made with the first object.
func Open(dir string) *Store { return &Store{dir: dir} }

func (s *Store) path(name string) (string, error) {
	if !values.Valid(name) {
		return "", fmt.Errorf("%w: %q is no name of one", values.ErrGone, name)
	}
	return filepath.Join(s.dir, filepath.FromSlash(name)), nil
}

// Put writes the object beside its place, syncs it, gives it its name and syncs
// the folder: the object is there as a whole or not at all.
func (s *Store) Put(ctx context.Context, name string, value []byte) (err error) {
	path, err := s.path(name)
	if err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	folder := filepath.Dir(path)
	if err := s.makeFolder(folder); err != nil {
		return err
	}
	f, err := s.create(folder)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // what is left is removed by List
		}
	}()
	_, err = f.Write(value)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(folder)
}

// create makes a new file in a folder of objects. The folder may have gone since it
// was made: who clears a disk of empty folders takes it.
func (s *Store) create(folder string) (*os.File, error) {
	f, err := os.CreateTemp(folder, unfinished+"*")
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	s.kept.Delete(folder)
	if err := s.makeFolder(folder); err != nil {
		return nil, err
	}
	return os.CreateTemp(folder, unfinished+"*")
}

// makeFolder makes a folder of objects and has its name on the disk: another
// process may have made it a moment ago.
func (s *Store) makeFolder(folder string) error {
	if _, ok := s.kept.Load(folder); ok {
		return nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	err := errors.Join(syncFolder(s.dir), syncFolder(filepath.Dir(s.dir)))
	if err == nil {
		s.kept.Store(folder, true)
	}
	return err
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get reads an object.
func (s *Store) Get(ctx context.Context, name string, most int64) ([]byte, error) {
	path, err := s.path(name)
	if err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	b, err := read(path, most)
	if errors.Is(err, fs.ErrNotExist) {
		if _, away := os.Stat(s.dir); away != nil {
			return nil, fmt.Errorf("the folder of the values: %w", away) // not mounted, perhaps
		}
		return nil, fmt.Errorf("%w: %s", values.ErrGone, path)
	}
	return b, err
}

// read reads a file of at most that many bytes.
func read(path string, most int64) (_ []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%w: %s has %d bytes, not %d", values.ErrLonger, path, info.Size(), most)
	}
	b := make([]byte, info.Size())
	_, err = io.ReadFull(f, b)
	return b, err
}

// Delete removes an object.
func (s *Store) Delete(ctx context.Context, name string) error {
	path, err := s.path(name)
	if err != nil {
		return nil //nolint:nilerr // it is not there
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Mark gives the mark of the folder, which is a file in it.
func (s *Store) Mark(ctx context.Context, mark []byte) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	held, err := read(s.MarkedAt(), values.MostMark)
	if !errors.Is(err, fs.ErrNotExist) {
		return held, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	if err := errors.Join(keyfile.Create(s.MarkedAt(), mark), syncFolder(filepath.Dir(s.dir))); err != nil {
		return nil, err
	}
	return read(s.MarkedAt(), values.MostMark) // another process may have been faster
}

// MarkedAt is the path of the mark.
func (s *Store) MarkedAt() string { return filepath.Join(s.dir, values.MarkName) }

// List gives objects in the order of their names. On the way it removes what was
// begun a day ago and never finished.
func (s *Store) List(ctx context.Context, after string, limit int) ([]values.Object, error) {
	folders, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []values.Object
	for _, folder := range folders { // they come sorted
		if len(list) >= limit {
			break
		}
		if !folder.IsDir() || len(folder.Name()) != 2 || len(after) > 2 && folder.Name() < after[:2] {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		some, err := s.listFolder(folder.Name(), after, limit-len(list))
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

func (s *Store) listFolder(folder, after string, limit int) ([]values.Object, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, folder)) // sorted
	if err != nil {
		return nil, err
	}
	var list []values.Object
	for _, e := range entries {
		name := folder + "/" + e.Name()
		if len(list) >= limit {
			break
		}
		begun := strings.HasPrefix(e.Name(), unfinished)
		if !begun && (name <= after || !values.Valid(name)) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !begun {
			list = append(list, values.Object{Name: name, Size: info.Size(), At: info.ModTime()})
			continue
		}
		if time.Since(info.ModTime()) > abandoned {
			_ = os.Remove(filepath.Join(s.dir, folder, e.Name())) // the next list tries again
		}
	}
	return list, nil
}
