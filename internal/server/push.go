package server

import (
	"github.com/parley-project/parley/internal/push"
)

// openPush makes what takes the notifications of agents, if they are told where
// this server is. Its key is in a file, so that agents that work across a
// restart hold tokens that still count.
func (s *Server) openPush() error {
	if s.cfg.PushURL == "" {
		return nil
	}
	key, err := push.LoadKey(s.cfg.PushKeyFile)
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
