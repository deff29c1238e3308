package slacktest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// socketTicket stands in the URL of the WebSocket, and is a secret.
const socketTicket = "tick3t-that-nobody-may-see"

// Ticket is what the URL of a Socket Mode connection holds, and no log may.
func Ticket() string { return socketTicket }

// socket is Socket Mode: envelopes that are sent until they are acknowledged.
type socket struct {
	queue []envelope
	// wake is closed when something has changed.
	wake  chan struct{}
	acked map[string]int
	sent  map[string]int
	// generation ends the connections before it, how says in what way.
	generation int
	how        string
	serial     int
	conns      int
}

type envelope struct {
	id  string
	raw []byte
	gen int // the connection that it was sent on; 0 is none
}

// Listen says where the server is reached by sockets, such as the URL of an
// httptest.Server.
func (s *Server) Listen(base string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base, s.upload = base, base
}

// Push sends an envelope of Socket Mode with a payload, and gives its id. It is
// sent again on the next connection until it is acknowledged.
func (s *Server) Push(typ string, payload []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.socket.serial++
	id := fmt.Sprint("envelope-", s.socket.serial)
	raw, err := json.Marshal(map[string]any{"type": typ, "envelope_id": id, "payload": json.RawMessage(payload), "accepts_response_payload": false})
	if err != nil {
		panic(err)
	}
	s.socket.queue = append(s.socket.queue, envelope{id: id, raw: raw})
	s.changed()
	return id
}

// Acks counts the acknowledgements of an envelope, Sends how often it was sent.
func (s *Server) Acks(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socket.acked[id]
}

// Sends counts how often an envelope was sent.
func (s *Server) Sends(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socket.sent[id]
}

// Connections counts the Socket Mode connections so far.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socket.conns
}

// Disconnect ends the connection: with a message that gives the reason, such as
// warning, or, if that is "", by breaking it.
func (s *Server) Disconnect(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.socket.generation++
	s.socket.how = reason
	s.changed()
}

// changed wakes the connections; mu is held.
func (s *Server) changed() {
	close(s.socket.wake)
	s.socket.wake = make(chan struct{})
}

func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("ticket") != socketTicket {
		http.Error(w, "no ticket", http.StatusForbidden)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go s.readAcks(ctx, cancel, conn)
	s.mu.Lock()
	s.socket.conns++
	mine, number := s.socket.generation, s.socket.conns
	s.mu.Unlock()
	if conn.Write(ctx, websocket.MessageText, []byte(`{"type":"hello","num_connections":1,"connection_info":{"app_id":"`+AppID+`"}}`)) != nil {
		return
	}
	for {
		s.mu.Lock()
		wake, ended, how := s.socket.wake, s.socket.generation != mine, s.socket.how
		var next *envelope
		for i := range s.socket.queue {
			if e := &s.socket.queue[i]; e.gen != number && s.socket.acked[e.id] == 0 {
				e.gen, next = number, &envelope{e.id, e.raw, number}
				s.socket.sent[e.id]++
				break
			}
		}
		s.mu.Unlock()
		switch {
		case ended && how == "":
			return
		case ended:
			_ = conn.Write(ctx, websocket.MessageText, []byte(`{"type":"disconnect","reason":"`+how+`"}`))
			t := time.NewTimer(time.Second)
			defer t.Stop()
			select {
			case <-ctx.Done():
			case <-t.C:
			}
			return
		case next != nil:
			if conn.Write(ctx, websocket.MessageText, next.raw) != nil {
				return
			}
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) readAcks(ctx context.Context, cancel func(), conn *websocket.Conn) {
	defer cancel()
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		var ack struct {
			ID string `json:"envelope_id"`
		}
		if json.Unmarshal(data, &ack) == nil && ack.ID != "" {
			s.mu.Lock()
			s.socket.acked[ack.ID]++
			s.mu.Unlock()
		}
	}
}
