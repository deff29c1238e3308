package server

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
)

// Run serves until ctx ends or a part fails, then stops everything in reverse
// order: the API takes no more requests, calls in flight get their grace, the
// store is closed last. Runs that are not finished go on at the next start.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	endpoint := filepath.Join(s.cfg.Data, "endpoint")
	if err := os.WriteFile(endpoint, []byte(s.URL()+"\n"), 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(endpoint)) }()

	// Each layer has a context of its own, so that they end one after another.
	engine, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEngine()
	calls, stopCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCalls()

	ended, end := context.WithCancel(ctx)
	defer end()
	var layers errgroup.Group
	part := func(run func() error) func() error {
		return func() error {
			defer end() // one part ends, all end
			return run()
		}
	}
	bridgeDone := make(chan struct{})
	layers.Go(part(func() error { defer close(bridgeDone); return s.bridge.Run(calls) }))
	select {
	case <-s.bridge.Taking(): // what is announced before would be lost for 5 s
	case <-ended.Done():
	}
	layers.Go(part(func() error { return s.executor.Run(engine) }))
	if s.samples != nil {
		layers.Go(part(func() error { return s.samples.run(engine) }))
	}
	layers.Go(part(func() error { return s.watchDisk(ended) }))
	layers.Go(part(func() error { return s.serve() }))

	<-ended.Done()
	s.stopServing()
	stopCalls()
	<-bridgeDone
	stopEngine()
	return layers.Wait()
}

func (s *Server) serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// watchDisk ends the server when the disk has failed: after a failed sync
// nothing that was written may be believed, so the process has to start anew.
func (s *Server) watchDisk(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.db.Fatal():
		return parley.Errorf(parley.CodeUnavailable, "the disk below %s failed; look at it, then start again", s.cfg.Data)
	}
}

// stopServing lets requests end, but no event stream or wait hold the stop up.
func (s *Server) stopServing() {
	const grace = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
}

// Close frees what New took. Run calls it; it may be called again.
func (s *Server) Close() error {
	var errs []error
	if s.listener != nil {
		_ = s.listener.Close() // closed already by a server that ran
	}
	if s.samples != nil {
		errs = append(errs, s.samples.close())
	}
	if s.a2a != nil {
		s.a2a.Close()
	}
	if s.bus != nil {
		errs = append(errs, s.bus.Close())
	}
	if s.exchange != nil {
		s.exchange.Close()
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}
