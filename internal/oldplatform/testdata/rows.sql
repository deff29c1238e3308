-- A platform that has been in use for a while.

INSERT INTO agents (id, name, url, description, auth_type, auth_config, timeout_ms, retry_config, status, created_by, updated_by, created_at, updated_at) VALUES
('a0000000-0000-4000-8000-000000000001', 'ResearchAgent', 'http://research.example:8081/', 'Finds things', 'none', NULL, 30000,
 '{"max_retries": 3, "initial_delay_ms": 1000, "max_delay_ms": 30000, "backoff_multiplier": 2.0}', 'active', 'system', 'system', '2026-03-01 08:00:00', '2026-03-01 08:00:00.123456'),
('a0000000-0000-4000-8000-000000000002', 'WriterAgent', 'https://writer.example/a2a', NULL, 'bearer', '{"type": "bearer", "token": "tok-writer-s3cr3t"}', 60000,
 '{"max_retries": 0, "initial_delay_ms": 250}', 'active', 'system', 'ann', '2026-03-01 08:01:00', '2026-04-02 09:00:00'),
('a0000000-0000-4000-8000-000000000003', 'Pricing & Tax', 'https://pricing.example/rpc', 'Ünïcode', 'apikey', '{"key": "key-pricing-s3cr3t", "header_name": "X-Pricing"}', 1000,
 NULL, 'inactive', 'system', 'system', '2026-03-02 08:00:00', '2026-03-02 08:00:00'),
('a0000000-0000-4000-8000-000000000004', 'OldTranslator', 'https://translator.example/', '', NULL, '{"type": "apikey", "api_key": "key-translator-s3cr3t", "header": "X-Key"}', 300000,
 '{}', 'deleted', 'system', 'system', '2026-03-03 08:00:00', '2026-05-03 08:00:00'),
('a0000000-0000-4000-8000-000000000005', 'NoToken', 'http://notoken.example/', NULL, 'bearer', NULL, 30000, NULL, 'active', NULL, NULL, '2026-03-04 08:00:00', '2026-03-04 08:00:00'),
('a0000000-0000-4000-8000-000000000006', 'BrokenAgent', 'ftp://broken.example/', NULL, 'none', NULL, 30000, NULL, 'active', NULL, NULL, '2026-03-05 08:00:00', '2026-03-05 08:00:00');

INSERT INTO workflow_definitions (id, name, description, version, workflow_data, status, created_by, updated_by, created_at, updated_at) VALUES
('d0000000-0000-4000-8000-000000000001', 'Research and write', 'First', 1, '{"workflow_id": "wf-Research and write-1", "name": "Research and write", "version": "1", "start_step": "research", "steps": {
  "research": {"id": "research", "type": "agent", "agent_name": "ResearchAgent", "next_step": null, "input_mapping": {"topic": "${workflow.input.topic}"}}}}',
 'inactive', 'system', 'system', '2026-03-10 08:00:00', '2026-03-10 08:00:00'),
('d0000000-0000-4000-8000-000000000002', 'Research and write', 'Second', 3, '{"workflow_id": "wf-Research and write-2", "name": "Research and write", "version": "3", "start_step": "research", "steps": {
  "research": {"id": "research", "type": "agent", "agent_name": "ResearchAgent", "next_step": "write", "input_mapping": {"topic": "${workflow.input.topic}"}, "parallel_steps": null, "condition": null},
  "write": {"id": "write", "type": "agent", "agent_name": "WriterAgent", "next_step": null, "input_mapping": {"data": "${research.output.findings}"}}}}',
 'active', 'system', 'system', '2026-03-11 08:00:00', '2026-03-12 08:00:00'),
('d0000000-0000-4000-8000-000000000003', 'research-and-write', NULL, 1, '{"workflow_id": "wf-research-and-write-1", "name": "research-and-write", "version": "1", "start_step": "x", "steps": {
  "x": {"id": "x", "agent_name": "ResearchAgent", "next_step": null, "input_mapping": {}}}}',
 'deleted', NULL, NULL, '2026-03-13 08:00:00', '2026-03-13 08:00:00'),
('d0000000-0000-4000-8000-000000000004', 'Each of them', NULL, 1, '{"workflow_id": "wf-Each of them-1", "name": "Each of them", "version": "1", "start_step": "all", "steps": {
  "all": {"id": "all", "type": "loop", "next_step": null, "loop_config": {"collection": "${workflow.input.items}", "loop_body": ["one"], "execution_mode": "sequential", "on_error": "continue"}},
  "one": {"id": "one", "agent_name": "ResearchAgent", "next_step": null, "input_mapping": {"item": "${loop.item}"}},
  "odd": {"id": "odd", "type": "fork_join", "next_step": null, "fork_join_config": {"branches": {"a": {"steps": ["one"]}}}}}}',
 'active', NULL, NULL, '2026-03-14 08:00:00', '2026-03-14 08:00:00');

INSERT INTO workflow_runs (run_id, workflow_id, workflow_name, workflow_definition_id, status, input_data, triggered_by, created_at, updated_at, completed_at, cancelled_at, cancelled_by, error_message) VALUES
('run-00000000-0000-4000-8000-000000000001', 'd0000000-0000-4000-8000-000000000002', 'Research and write', 'd0000000-0000-4000-8000-000000000002', 'COMPLETED',
 '{"topic": "<tea> & é", "n": 12345678901234567890123}', 'system', '2026-06-01 10:00:00', '2026-06-01 10:00:09.5', '2026-06-01 10:00:09.5', NULL, NULL, NULL),
('run-00000000-0000-4000-8000-000000000002', 'd0000000-0000-4000-8000-000000000002', 'Research and write', 'd0000000-0000-4000-8000-000000000002', 'FAILED',
 '{"topic": "coffee"}', 'system', '2026-06-02 10:00:00', '2026-06-02 10:05:00', '2026-06-02 10:05:00', NULL, NULL,
 'Workflow failed at step ''write'': Timeout waiting for agent result (correlation_id: corr-1)'),
('run-00000000-0000-4000-8000-000000000003', 'd0000000-0000-4000-8000-000000000002', 'Research and write', 'd0000000-0000-4000-8000-000000000002', 'CANCELLED',
 '{"topic": "milk"}', 'system', '2026-06-03 10:00:00', '2026-06-03 10:01:00', NULL, '2026-06-03 10:01:00', 'system', 'Cancelled: no longer needed'),
('run-00000000-0000-4000-8000-000000000004', 'd0000000-0000-4000-8000-000000000002', 'Research and write', 'd0000000-0000-4000-8000-000000000002', 'RUNNING',
 '{"topic": "water"}', 'system', '2026-06-04 10:00:00', '2026-06-04 10:00:07', NULL, NULL, NULL, NULL),
('run-00000000-0000-4000-8000-000000000005', 'd0000000-0000-4000-8000-000000000002', 'Research and write', 'd0000000-0000-4000-8000-000000000002', 'PENDING',
 '{"topic": "juice"}', 'system', '2026-06-05 10:00:00', '2026-06-05 10:00:00', NULL, NULL, NULL, 'Failed to publish to Kafka: NoBrokersAvailable'),
('run-by-hand.1', 'wf-by-hand', 'By hand', NULL, 'COMPLETED',
 NULL, NULL, '2026-06-06 10:00:00', '2026-06-06 10:00:03', '2026-06-06 10:00:03', NULL, NULL, NULL),
('run-00000000-0000-4000-8000-000000000007', 'd0000000-0000-4000-8000-000000000004', 'Each of them', 'd0000000-0000-4000-8000-000000000004', 'FAILED',
 '{"items": [1, 2, 3]}', 'system', '2026-06-07 10:00:00', '2026-06-07 10:00:10', '2026-06-07 10:00:10', NULL, NULL, 'Something else broke'),
('run-00000000-0000-4000-8000-000000000008', 'd0000000-0000-4000-8000-000000000001', 'Research and write', 'd0000000-0000-4000-8000-000000000001', 'FAILED',
 '{}', 'system', '2026-06-08 10:00:00', '2026-06-08 10:00:10', NULL, NULL, NULL, NULL);

INSERT INTO step_executions (id, run_id, step_id, step_name, agent_name, status, input_data, output_data, started_at, completed_at, error_message) VALUES
('run-00000000-0000-4000-8000-000000000001-research-aaaa0001', 'run-00000000-0000-4000-8000-000000000001', 'research', 'ResearchAgent', 'ResearchAgent', 'COMPLETED',
 '{"topic": "<tea> & é"}', '{"findings": ["leaf", 1.50]}', '2026-06-01 10:00:01', '2026-06-01 10:00:04', NULL),
('run-00000000-0000-4000-8000-000000000001-write-aaaa0002', 'run-00000000-0000-4000-8000-000000000001', 'write', 'WriterAgent', 'WriterAgent', 'COMPLETED',
 '{"data": ["leaf", 1.50]}', '{"text": "All about tea"}', '2026-06-01 10:00:04', '2026-06-01 10:00:09', NULL),
('run-00000000-0000-4000-8000-000000000002-research-bbbb0001', 'run-00000000-0000-4000-8000-000000000002', 'research', 'ResearchAgent', 'ResearchAgent', 'FAILED',
 '{"topic": "coffee"}', NULL, '2026-06-02 10:00:01', '2026-06-02 10:00:02', 'HTTP 422: Client error'),
('run-00000000-0000-4000-8000-000000000002-research-bbbb0002', 'run-00000000-0000-4000-8000-000000000002', 'research', 'ResearchAgent', 'ResearchAgent', 'FAILED',
 '{"topic": "coffee", "try": 2}', NULL, '2026-06-02 10:00:03', '2026-06-02 10:00:04', 'Cannot resolve ''${x}'''),
('run-00000000-0000-4000-8000-000000000002-research-bbbb0003', 'run-00000000-0000-4000-8000-000000000002', 'research', 'ResearchAgent', 'ResearchAgent', 'COMPLETED',
 '{"topic": "coffee"}', '{"findings": "beans"}', '2026-06-02 10:00:06', '2026-06-02 10:00:07', NULL),
('run-00000000-0000-4000-8000-000000000002-write-bbbb0004', 'run-00000000-0000-4000-8000-000000000002', 'write', 'WriterAgent', 'WriterAgent', 'FAILED',
 '{"data": "beans"}', NULL, '2026-06-02 10:00:07', '2026-06-02 10:05:00', 'Timeout waiting for agent result (correlation_id: corr-1)'),
('run-00000000-0000-4000-8000-000000000003-research-cccc0001', 'run-00000000-0000-4000-8000-000000000003', 'research', 'ResearchAgent', 'ResearchAgent', 'RUNNING',
 '{"topic": "milk"}', NULL, '2026-06-03 10:00:01', NULL, NULL),
('run-00000000-0000-4000-8000-000000000004-research-dddd0001', 'run-00000000-0000-4000-8000-000000000004', 'research', 'ResearchAgent', 'ResearchAgent', 'COMPLETED',
 '{"topic": "water"}', '{"findings": "wet"}', '2026-06-04 10:00:01', '2026-06-04 10:00:05', NULL),
('run-00000000-0000-4000-8000-000000000004-write-dddd0002', 'run-00000000-0000-4000-8000-000000000004', 'write', 'WriterAgent', 'WriterAgent', 'RUNNING',
 '{"data": "wet"}', NULL, '2026-06-04 10:00:06', NULL, NULL),
('run-by-hand.1-only-eeee0001', 'run-by-hand.1', 'only', 'ResearchAgent', 'ResearchAgent', 'COMPLETED', '{}', NULL, '2026-06-06 10:00:01', '2026-06-06 10:00:02', NULL),
('run-00000000-0000-4000-8000-000000000007-one-ffff0001', 'run-00000000-0000-4000-8000-000000000007', 'one', 'ResearchAgent', 'ResearchAgent', 'COMPLETED',
 '{"item": 1}', '{"r": 1}', '2026-06-07 10:00:01', '2026-06-07 10:00:02', NULL),
('run-00000000-0000-4000-8000-000000000007-one-ffff0002', 'run-00000000-0000-4000-8000-000000000007', 'one', 'ResearchAgent', 'ResearchAgent', 'FAILED',
 '{"item": 2}', NULL, '2026-06-07 10:00:03', '2026-06-07 10:00:04', 'Task state: failed'),
('run-00000000-0000-4000-8000-000000000007-one-ffff0003', 'run-00000000-0000-4000-8000-000000000007', 'one', 'ResearchAgent', 'ResearchAgent', 'COMPLETED',
 '{"item": 3}', '{"r": 3}', '2026-06-07 10:00:05', '2026-06-07 10:00:06', NULL);

INSERT INTO audit_logs (id, entity_type, entity_id, action, user_id, changes, created_at, updated_at) VALUES
('e0000000-0000-4000-8000-000000000001', 'agent', 'a0000000-0000-4000-8000-000000000002', 'create', 'system',
 '{"name": "WriterAgent", "auth_type": "bearer", "auth_config": {"type": "bearer", "token": "tok-writer-s3cr3t"}, "url": "https://writer.example/a2a"}', '2026-03-01 08:01:00', '2026-03-01 08:01:00'),
('e0000000-0000-4000-8000-000000000002', 'run', '00000000-0000-4000-8000-000000000001', 'execute', 'system',
 '{"workflow_id": "d0000000-0000-4000-8000-000000000002", "input_data": {"topic": "<tea> & é"}}', '2026-06-01 10:00:00', '2026-06-01 10:00:00'),
('e0000000-0000-4000-8000-000000000003', 'workflow', 'd0000000-0000-4000-8000-000000000003', 'delete', NULL, NULL, '2026-03-13 08:00:00', '2026-03-13 08:00:00');

INSERT INTO ai_chat_sessions VALUES
('c0000000-0000-4000-8000-000000000001', NULL, 'active', '2026-06-01 10:00:00', '2026-06-01 10:00:00', '2026-06-01 11:00:00', NULL, '[]', '[]');
