package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-project/parley"
)

// Run serves until ctx ends or a part fails, then stops everything in reverse
// order: no new work is taken, calls in flight get their grace, while the API
// still shows what becomes of them; then it ends, and the store is closed last.
// Runs that are not finished go on at the next start, or in another process.
func (s *Server) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	remove, err := s.writeEndpoint()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()

	// Each layer has a context of its own, so that they end one after another.
	hints, stopHints := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHints()
	engine, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEngine()
	calls, stopCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCalls()

	ended, end := context.WithCancel(ctx)
	defer end()
	var layers, base errgroup.Group
	part := func(run func() error) func() error {
		return func() error {
			defer end() // one part ends, all end
			return unlessStopped(ctx, run())
		}
	}
	for _, run := range s.base(hints) {
		base.Go(part(run))
	}
	if s.notices != nil {
		await(ended, s.notices.Ready())
	}
	bridgeDone := make(chan struct{})
	layers.Go(part(func() error { defer close(bridgeDone); return s.runBridge(calls) }))
	if s.bridge != nil {
		await(ended, s.bridge.Taking()) // what is announced before would be lost for 5 s
	}
	if s.executor != nil {
		layers.Go(part(func() error { return s.executor.Run(engine) }))
	}
	if s.publisher != nil {
		layers.Go(part(func() error { return s.publisher.Run(calls) }))
	}
	if s.letters != nil && (s.cfg.has(RoleExecutor) || s.cfg.has(RoleBridge)) {
		layers.Go(part(func() error { return s.letters.Run(engine) }))
	}
	if s.samples != nil {
		layers.Go(part(func() error { return s.samples.run(engine) }))
	}
	for _, run := range s.rim(ended) {
		layers.Go(part(run))
	}
	if s.executor != nil {
		await(ended, s.executor.Taking()) // without what it listens to the process ends
	}
	if ended.Err() == nil { // else a part has failed before the others were there, or this is to stop
		s.running.Store(true)
		close(s.begun)
	}

	<-ended.Done()
	s.refuse()
	stopCalls()
	<-bridgeDone
	s.stopServing()
	stopEngine()
	err = layers.Wait()
	stopHints()
	return errors.Join(err, base.Wait())
}

// Started is closed when all parts of a server that runs have begun, and the commands
// on this machine find it. It is never closed if they could not.
func (s *Server) Started() <-chan struct{} { return s.begun }

// unlessStopped is the error of a part, but for one that was stopped before it had
// begun: that is no failure.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// await waits until a part has begun, or ctx ends.
func await(ctx context.Context, begun <-chan struct{}) {
	select {
	case <-begun:
	case <-ctx.Done():
	}
}

// base gives the parts that the others stand on to their end.
func (s *Server) base(ctx context.Context) (parts []func() error) {
	if s.db != nil {
		parts = append(parts, func() error { return s.db.WatchSchema(ctx, s.declare) })
	}
	if s.notices != nil {
		parts = append(parts, func() error { return s.notices.Run(ctx) })
	}
	return parts
}

// rim gives the parts that look at the others, and those that others call. The
// former end with ended.
func (s *Server) rim(ended context.Context) []func() error {
	parts := []func() error{s.serve}
	if s.db != nil {
		parts = append(parts, func() error { return s.watchDisk(ended) }, func() error { return s.runChecker(ended) },
			func() error { return s.runRetention(ended) }, func() error { return s.runScheduler(ended) })
	}
	if s.cfg.shared() {
		parts = append(parts, func() error { return s.watchPeers(ended) })
	}
	if s.db != nil && s.cfg.has(RoleExecutor) {
		parts = append(parts, func() error { return s.sweepValues(ended) })
	}
	if s.zone != nil {
		parts = append(parts, s.zone.serve, func() error { return s.zone.work.count(ended) })
	}
	return parts
}

// refuse takes no new work any more, and lets nobody wait for what is under way: an
// answer that is late would be cut off.
func (s *Server) refuse() {
	s.stopping.Store(true)
	close(s.waitsEnd)
	s.running.Store(false)
	if s.zone != nil {
		s.zone.serving.Drain()
	}
	if s.executor != nil {
		s.executor.StopIntake()
	}
}

// runBridge runs the bridge, if this process has that role, until ctx ends.
func (s *Server) runBridge(ctx context.Context) error {
	if s.bridge == nil {
		<-ctx.Done()
		return nil
	}
	return s.bridge.Run(ctx)
}

// writeEndpoint notes where the API is, for commands on this machine. remove
// undoes that, unless another process has noted its own meanwhile.
func (s *Server) writeEndpoint() (remove func() error, err error) {
	if !s.cfg.has(RoleAPI) {
		return func() error { return nil }, nil
	}
	file, text := filepath.Join(s.cfg.Data, "endpoint"), []byte(s.URL()+"\n")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		if info, lookErr := os.Lstat(file); lookErr == nil && !info.IsDir() {
			err = errors.Join(err, os.Remove(file)) // half an address leads commands nowhere
		}
		return nil, err
	}
	return func() error {
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, text) {
			return nil //nolint:nilerr // it is not there or not ours
		}
		return os.Remove(file)
	}, nil
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
	all := []*http.Server{s.http}
	if s.zone != nil {
		all = append(all, s.zone.servers...)
	}
	var stopped sync.WaitGroup
	for _, server := range all {
		stopped.Go(func() {
			if err := server.Shutdown(ctx); err != nil {
				_ = server.Close()
			}
		})
	}
	stopped.Wait()
}

// Close frees what New took. Run calls it; it may be called again.
func (s *Server) Close() error {
	var errs []error
	if s.listener != nil {
		_ = s.listener.Close() // closed already by a server that ran
	}
	if s.zone != nil {
		s.zone.close()
	}
	if s.samples != nil {
		errs = append(errs, s.samples.close())
	}
	if s.a2a != nil {
		s.a2a.Close()
	}
	if s.closeBus != nil {
		errs = append(errs, s.closeBus())
	}
	s.asking.Wait() // the bus was what they could wait for
	if s.exchange != nil {
		s.exchange.Close()
	}
	s.closeTracer()
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}
