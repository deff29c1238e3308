package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// workshop is what the benchmarks of the product's own processes need: a folder,
// the binary, and a process that is all agents.
type workshop struct {
	dir, binary string
	agents      *child
}

// openWorkshop makes one; the caller closes it. The folder is on a real disk: a
// sync to memory would cost nothing.
func openWorkshop(ctx context.Context) (w *workshop, err error) {
	dir, err := os.MkdirTemp(".", ".bench-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	w = &workshop{dir: dir}
	if w.binary, err = buildParley(ctx, dir); err == nil {
		w.agents, err = startSelf(ctx, agentChild, struct{}{})
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *workshop) close() {
	if w.agents != nil {
		w.agents.stop()
	}
	_ = os.RemoveAll(w.dir)
}
