package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/config"
	"github.com/parley-project/parley/internal/server"
	"github.com/parley-project/parley/internal/workflow"
)

const (
	// scarceSpace is free space to worry about, leastSpace what a database cannot
	// work with, in bytes.
	scarceSpace = 1 << 30
	leastSpace  = 64 << 20
	// sparesFiles are open files besides those of calls: the database, the bus,
	// who asks the API.
	sparesFiles = 512
	// mayWrite and mayEnter are what access(2) is asked about a folder.
	mayWrite, mayEnter = 2, 1
)

// configuration reads the settings, and says how that went.
func (d *doctor) configuration(f *settingFlags) []finding {
	const name = "configuration"
	loaded, err := f.read(d.a)
	if err != nil {
		return refused(name, err)
	}
	specs, problems := readAgents(loaded)
	var found []finding
	bad := false
	for _, p := range problems {
		if p.Severity == parley.SeverityError {
			found, bad = append(found, broken(name, withMember(p).String(), "correct it there")), true
			continue
		}
		found = append(found, odd(name, withMember(p).String(), "correct it there"))
	}
	if bad {
		return found
	}
	cfg, redactor, err := d.a.serverConfigWith(loaded, specs)
	if err != nil {
		return append(found, refused(name, err)...)
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	d.loaded, d.specs, d.cfg, d.redactor = loaded, specs, cfg, redactor
	d.findData()
	if err := d.cfg.Check(); err != nil {
		found = append(found, refused(name, err)...)
	}
	for _, note := range loaded.Notes {
		found = append(found, odd(name, note, ""))
	}
	if len(found) > 0 {
		return found
	}
	from := f.path(d.a)
	if from == "" {
		from = "no file: defaults, variables and flags"
	}
	return []finding{fine(name, from)}
}

// findData takes the data folder that the other commands would take, where nobody
// has named one.
func (d *doctor) findData() {
	if !d.bare || d.loaded.Origin("data") != "default" {
		return
	}
	dir := d.a.getenv("PARLEY_DATA")
	if dir != "" {
		dir = d.a.path(dir)
	} else if dir = nearestData(d.a.dir); dir == "" {
		return
	}
	d.loaded.Data, d.cfg.Data = dir, dir
}

// refused makes a finding of each thing that is wrong with the settings.
func refused(check string, err error) []finding {
	problems, ok := errors.AsType[parley.Problems](err)
	if !ok {
		f := classify(err)
		advice := f.hint
		if advice == "" {
			advice = "parley config view --origin says where each setting comes from"
		}
		return []finding{broken(check, f.text, advice)}
	}
	var found []finding
	for _, p := range problems {
		found = append(found, broken(check, p.String(), "correct it there"))
	}
	return found
}

// dataFolder looks whether a server could keep its keys and its database there.
func (d *doctor) dataFolder(context.Context) []finding {
	const name = "data"
	dir := d.loaded.Data
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		above := filepath.Dir(dir)
		for !exists(above) && above != filepath.Dir(above) {
			above = filepath.Dir(above)
		}
		if err := syscall.Access(above, mayWrite|mayEnter); err != nil {
			return []finding{broken(name, fmt.Sprintf("there is no folder %s, and none can be made in %s: %v", dir, above, err), "make it, or name another with data")}
		}
		return []finding{odd(name, "there is no folder "+dir, "the first start makes it; if it should be there, name the right one with data")}
	case err != nil:
		return []finding{broken(name, err.Error(), "let the user of Parley enter the folders above it")}
	case !info.IsDir():
		return []finding{broken(name, dir+" is no folder", "name a folder with data")}
	}
	if err := syscall.Access(dir, mayWrite|mayEnter); err != nil {
		return []finding{broken(name, fmt.Sprintf("%s cannot be written to: %v", dir, err), "give the folder to the user of Parley")}
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return []finding{odd(name, fmt.Sprintf("%s can be written to; how much is free is not known: %v", dir, err), "look at the disk")}
	}
	return []finding{judgeSpace(dir, disk.Bavail*uint64(disk.Bsize))} //nolint:gosec // a size, of another type on other systems
}

// judgeSpace says whether free bytes are enough.
func judgeSpace(dir string, free uint64) finding {
	const name, advice = "data", "free some, or let retention remove old runs"
	text := fmt.Sprintf("%s, %s free", dir, byteCount(int64(min(free, math.MaxInt64))))
	switch {
	case free < leastSpace:
		return broken(name, text, advice)
	case free < scarceSpace:
		return odd(name, text, advice)
	}
	return fine(name, text)
}

// workflows looks whether the documents can be deployed that each start deploys: one
// that is wrong keeps a server from starting.
func (d *doctor) workflows(context.Context) []finding {
	const name = "workflows"
	if len(d.loaded.Workflows) == 0 || !slices.Contains(d.loaded.Roles, config.RoleAPI) {
		return nil
	}
	var found []finding
	documents := 0
	for _, dir := range d.loaded.Workflows {
		files, err := server.Documents(dir)
		if err != nil {
			found = append(found, broken(name, err.Error(), "make the folder, or correct workflows"))
			continue
		}
		documents += len(files)
		for _, file := range files {
			found = append(found, d.document(name, file)...)
		}
	}
	if len(found) > 0 {
		return found
	}
	return []finding{fine(name, plural(documents, "document")+" to deploy")}
}

// document looks at one document; only what keeps it from being deployed is told.
func (d *doctor) document(check, file string) []finding {
	source, err := readFile(file, maxDocument)
	if err != nil {
		return []finding{broken(check, err.Error(), "let the user of Parley read it")}
	}
	_, problems := workflow.Parse(workflow.ParseOptions{File: file, Limits: documentLimits(d.loaded.Limits)}, source)
	var found []finding
	for _, p := range problems {
		if p.Severity == parley.SeverityError {
			found = append(found, broken(check, p.String(), "correct it there"))
		}
	}
	return found
}

// openFiles looks whether a process may have as many open as it may have calls.
func (d *doctor) openFiles(context.Context) []finding {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return []finding{odd("open files", "the limit is not known: "+err.Error(), "ulimit -n tells it")}
	}
	return []finding{judgeFiles(limit.Cur, d.loaded.Limits.Calls)}
}

// judgeFiles says whether so many open files are enough for so many calls, each of
// which may have a connection.
func judgeFiles(limit uint64, calls int) finding {
	need := uint64(max(calls, 0)) + sparesFiles
	if limit < need {
		return odd("open files", fmt.Sprintf("a process here may have %d; limits.calls is %d, for which %d are enough", limit, calls, need),
			fmt.Sprintf("raise it for the server (ulimit -n %d, LimitNOFILE), or lower limits.calls", need))
	}
	return fine("open files", fmt.Sprintf("a process here may have %d", limit))
}
