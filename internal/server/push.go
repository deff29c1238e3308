package server

import (
	"net/http"
	"path/filepath"
	"strings"

	"github.com/parley-project/parley/internal/push"
)

// openPush makes what takes the notifications of agents, if they are told where
// this server is. Its key is in the data folder, so that agents that work
// across a restart hold tokens that still count.
func (s *Server) openPush() error {
	if s.cfg.PushURL == "" {
		return nil
	}
	key, err := push.LoadKey(filepath.Join(s.cfg.Data, "push.key"))
	if err != nil {
		return err
	}
	s.push, err = push.New(push.Config{URL: s.cfg.PushURL, Key: key, Bus: s.bus, Now: s.cfg.Now, Logger: s.log})
	return err
}

// pushTarget gives where agents post, or nil.
func (s *Server) pushTarget() func(taskID string) (url, token string, ok bool) {
	if s.push == nil {
		return nil
	}
	return s.push.Target
}

// withPush puts the notifications beside the API: they have secrets of their
// own in place of its key.
func (s *Server) withPush(api http.Handler) http.Handler {
	if s.push == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, push.Path) {
			s.push.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}
