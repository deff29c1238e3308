package server

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/store"
	"github.com/parley-project/parley/internal/values"
	"github.com/parley-project/parley/internal/values/files"
	"github.com/parley-project/parley/internal/values/s3"
)

// ValuesConfig says where values of runs are kept that are too large for the
// database. Processes that share a database need the same.
type ValuesConfig struct {
	// ApartAbove is how many bytes a value may have that stays in the database; 0
	// keeps all there. What was kept apart before can be read all the same.
	ApartAbove int64
	// Dir is a folder, default values in the data folder; S3, if set, is a bucket
	// instead.
	Dir string
	S3  *ValuesBucket
}

// ValuesBucket is a bucket of values.
type ValuesBucket = s3.Config

const (
	// A fetch, or a write, of one value takes no longer.
	valueWithin = 15 * time.Second
	// valuesEvery is the time between two looks for values that nobody refers to.
	valuesEvery = 10 * time.Minute
	// valuesPause is the time between two parts of one look.
	valuesPause = time.Second
)

// open gives the store of values; nil where there is none.
func (c ValuesConfig) open(ctx context.Context, data string, shared bool) (values.Store, error) {
	if c.S3 != nil {
		return s3.Open(ctx, *c.S3)
	}
	if c.Dir != "" {
		return files.Open(c.Dir), nil
	}
	if !shared {
		return files.Open(filepath.Join(data, "values")), nil
	}
	if c.ApartAbove > 0 {
		return nil, parley.Errorf(parley.CodeInvalid,
			"values.apart_above keeps values in files, which all processes that share the database need: set values.dir to a folder that all of them see, or values.store: s3")
	}
	return nil, nil //nolint:nilnil // nobody keeps values apart
}

// storeOptions are those of the database of the server.
func (s *Server) storeOptions(ctx context.Context) (store.Options, error) {
	o := store.Options{Now: s.cfg.Now, Logger: s.log, Failpoint: s.cfg.Failpoint, Dial: s.cfg.Dial, Current: s.cfg.DatabaseCurrent, Patience: databasePatience, Readers: s.cfg.Readers, Writers: s.cfg.Writers}
	apart, err := s.cfg.Values.open(ctx, s.cfg.Data, s.cfg.shared())
	if err != nil || apart == nil {
		return o, err
	}
	o.Values, o.ApartAbove = values.Patient(apart, s.cfg.Now, valueWithin), int(s.cfg.Values.ApartAbove)
	return o, nil
}

// ownValues refuses a store of values that is another database's. One that does not
// answer is no reason not to start.
func (s *Server) ownValues(ctx context.Context) error {
	apart, err := s.db.KeepsApart(ctx)
	if err != nil || !apart {
		return err
	}
	err = s.db.OwnValues(ctx)
	if errors.Is(err, store.ErrAway) {
		s.log.Warn("until it is known whose the store of values is, large values stay in the database, and none is removed", "error", err)
		return nil
	}
	return err
}

// sweepValues looks for values that nobody refers to, until ctx ends. Several
// processes may do so at a time.
func (s *Server) sweepValues(ctx context.Context) error {
	wait := time.NewTimer(valuesPause)
	defer wait.Stop()
	for next := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		}
		var err error
		next, err = s.sweepSomeValues(ctx, next)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("values that nobody refers to were not looked for; that is tried again", "error", err)
		}
		if wait.Reset(valuesPause); next == "" {
			wait.Reset(valuesEvery)
		}
	}
}

func (s *Server) sweepSomeValues(ctx context.Context, after string) (next string, err error) {
	apart, err := s.db.KeepsApart(ctx)
	if err != nil || !apart {
		return "", err
	}
	removed, next, err := s.db.SweepValues(ctx, after, s.db.Now())
	if removed > 0 {
		s.log.Info("values removed that nobody refers to", "values", removed)
	}
	return next, err
}

// Backup copies the database into a new file, while a server may run on it, and
// the values that are kept apart in files into a new folder beside it, FILE.values.
// It gives how many those are. Values in a bucket are not copied. After an error
// there is neither.
func (d *Database) Backup(ctx context.Context, file string) (apart int, err error) {
	folder := file + ".values"
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		return 0, parley.Errorf(parley.CodeConflict, "%s is there already: give the backup another name", folder)
	}
	if err := d.db.Backup(ctx, file); err != nil || d.Values.S3 != nil {
		return 0, err
	}
	if apart, err = d.backupValues(ctx, file, folder); err != nil {
		// Half a backup must not be taken for a whole one, nor stand in the way of the next.
		err = errors.Join(err, os.Remove(file), os.RemoveAll(folder))
	}
	return apart, err
}

// backupValues copies what the copy of a database refers to into a folder.
func (d *Database) backupValues(ctx context.Context, file, folder string) (apart int, err error) {
	from, err := d.Values.open(ctx, d.data, false)
	if err != nil {
		return 0, err
	}
	// What the copy refers to, not what the database does by now.
	copied, err := store.Open(ctx, file, store.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, copied.Close()) }()
	to := files.Open(folder)
	err = copied.EachObject(ctx, func(name string, size int64) error {
		value, err := from.Get(ctx, name, size)
		if err != nil {
			return parley.Errorf(parley.CodeUnavailable, "the backup lacks a value that is kept apart, take another one: %w", err)
		}
		if err := to.Put(ctx, name, value); err != nil {
			return parley.Errorf(parley.CodeUnavailable, "the backup cannot be written: a value of %d bytes that is kept apart does not get into %s; make room there, or give the backup a place on another disk: %w",
				size, folder, err)
		}
		apart++
		return nil
	})
	return apart, err
}
