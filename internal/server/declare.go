package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-project/parley"
	"github.com/parley-project/parley/internal/registry"
	"github.com/parley-project/parley/internal/sample"
)

// declare brings the registry and the catalog in line with the configuration:
// agent files, workflow folders, samples. It may be called again, where the database
// may have lost what it had.
func (s *Server) declare(ctx context.Context) error {
	if _, _, _, err := s.registry.Declare(ctx, s.cfg.AgentSpecs); err != nil {
		return fmt.Errorf("agents of the configuration: %w", err)
	}
	for _, file := range s.cfg.AgentFiles {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("agents file: %w", err)
		}
		specs, problems := registry.LoadFile(file, data)
		if hasErrors(problems) {
			return problems
		}
		if _, _, _, err := s.registry.Declare(ctx, specs); err != nil {
			return fmt.Errorf("agents file %s: %w", file, err)
		}
	}
	if s.cfg.Samples {
		if err := s.declareSamples(ctx); err != nil {
			return err
		}
	}
	if !s.cfg.has(RoleAPI) {
		return nil // of several processes those with the API deploy
	}
	for _, dir := range s.cfg.WorkflowDirs {
		if err := s.deployFolder(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

func hasErrors(ps parley.Problems) bool {
	return slices.ContainsFunc(ps, func(p parley.Problem) bool { return p.Severity == parley.SeverityError })
}

// deployFolder deploys every document of a folder. Equal content stays the
// version that it is.
func (s *Server) deployFolder(ctx context.Context, dir string) error {
	files, err := Documents(dir)
	if err != nil {
		return fmt.Errorf("workflows folder: %w", err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := s.deploy(ctx, file, source); err != nil {
			return err
		}
	}
	return nil
}

// Documents gives the files of a folder that are deployed at a start, in the order of
// their names. Hidden ones, as editors and copies of other systems leave them, are none.
func Documents(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() && !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files, nil
}

// deploy deploys one document. Another process may do the same just now: then
// its version is found the second time. The error names the file.
func (s *Server) deploy(ctx context.Context, file string, source []byte) error {
	req := parley.ApplyRequest{File: file, Source: source, By: "folder"}
	_, _, err := s.catalog.Apply(ctx, req)
	if parley.CodeOf(err) == parley.CodeConflict {
		_, _, err = s.catalog.Apply(ctx, req)
	}
	if e, ok := errors.AsType[*parley.Error](err); ok {
		return parley.Errorf(e.Code, "%s: %w", file, err)
	}
	return err // problems name it themselves
}

// samples are the two agents of `parley dev`, served over real HTTP.
type samples struct {
	servers []*http.Server
	listens []net.Listener
	specs   []parley.AgentSpec
	records []parley.Agent
}

// declareSamples registers the sample agents and deploys hello. The first call
// listens for the agents, too.
func (s *Server) declareSamples(ctx context.Context) error {
	first := s.samples == nil
	if first {
		s.samples = &samples{}
		if err := s.samples.open(ctx); err != nil {
			return err
		}
	}
	if _, _, _, err := s.registry.Declare(ctx, s.samples.specs); err != nil {
		return err
	}
	if first { // what others read does not change
		for _, spec := range s.samples.specs {
			record, err := s.registry.Get(ctx, *spec.Name)
			if err != nil {
				return err
			}
			s.samples.records = append(s.samples.records, record)
		}
	}
	_, _, err := s.catalog.Apply(ctx, parley.ApplyRequest{File: "hello.yaml", Source: []byte(sample.Workflow()), By: "sample"})
	return err
}

// open listens for the sample agents.
func (p *samples) open(ctx context.Context) error {
	agents := []struct {
		name, protocol, about string
		handler               http.Handler
	}{
		{"greeter", parley.ProtocolSimpleA2A, "Sample agent: greets whoever it is given", sample.Greeter()},
		{"polisher", parley.ProtocolJSONRPC, "Sample agent: polishes a text", sample.Polisher("")},
	}
	for _, a := range agents {
		url, err := p.listen(ctx, a.handler)
		if err != nil {
			return err
		}
		p.specs = append(p.specs, parley.AgentSpec{
			Name: &a.name, URL: &url, Protocol: &a.protocol, Description: &a.about, By: "sample",
		})
	}
	return nil
}

func (p *samples) listen(ctx context.Context, h http.Handler) (url string, err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	p.listens = append(p.listens, l)
	p.servers = append(p.servers, &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second})
	return "http://" + l.Addr().String() + "/", nil
}

// run serves until ctx ends.
func (p *samples) run(ctx context.Context) error {
	failed := make(chan error, len(p.servers))
	for i, srv := range p.servers {
		go func() { failed <- srv.Serve(p.listens[i]) }()
	}
	<-ctx.Done()
	err := p.close()
	for range p.servers {
		if e := <-failed; !errors.Is(e, http.ErrServerClosed) && !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func (p *samples) close() error {
	var errs []error
	for _, srv := range p.servers {
		errs = append(errs, srv.Close())
	}
	for _, l := range p.listens {
		_ = l.Close() // closed already by the server that served it
	}
	return errors.Join(errs...)
}
