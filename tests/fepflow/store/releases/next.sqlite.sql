BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE api_key (
	id VARCHAR(16) NOT NULL, 
	name TEXT NOT NULL, 
	secret_hash VARCHAR(64) NOT NULL, 
	scopes TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	revoked_at DATETIME, 
	CONSTRAINT pk_api_key PRIMARY KEY (id)
);
CREATE TABLE audit_entry (
	id INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	caller TEXT, 
	source TEXT, 
	action TEXT NOT NULL, 
	resource TEXT, 
	outcome VARCHAR(32) NOT NULL, 
	CONSTRAINT pk_audit_entry PRIMARY KEY (id)
);
CREATE TABLE baseline (
	suite TEXT NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	others TEXT NOT NULL, 
	set_at DATETIME NOT NULL, 
	CONSTRAINT pk_baseline PRIMARY KEY (suite, name), 
	CONSTRAINT fk_baseline_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO "baseline" VALUES('capitals','main','2e506f2e0cbf41bb9500521cdddba531','[]','2026-11-26 12:41:16.480657');
CREATE TABLE blob (
	digest VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	noted_at DATETIME NOT NULL, 
	CONSTRAINT pk_blob PRIMARY KEY (digest)
);
CREATE TABLE cached_response (
	"key" VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	model TEXT NOT NULL, 
	response_model TEXT NOT NULL, 
	mode VARCHAR(16), 
	text TEXT NOT NULL, 
	prompt_tokens INTEGER, 
	completion_tokens INTEGER, 
	cost_picousd BIGINT, 
	dropped_params TEXT NOT NULL, 
	responded_at DATETIME NOT NULL, 
	CONSTRAINT pk_cached_response PRIMARY KEY ("key")
);
CREATE TABLE calibration (
	id VARCHAR(64) NOT NULL, 
	created_at DATETIME NOT NULL, 
	judge VARCHAR(64) NOT NULL, 
	rubric VARCHAR(64) NOT NULL, 
	model TEXT NOT NULL, 
	parameters TEXT NOT NULL, 
	check_id TEXT NOT NULL, 
	field TEXT NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	n INTEGER NOT NULL, 
	missing INTEGER NOT NULL, 
	statistics TEXT NOT NULL, 
	CONSTRAINT pk_calibration PRIMARY KEY (id)
);
CREATE TABLE check_result (
	run_id VARCHAR(64) NOT NULL, 
	case_index INTEGER NOT NULL, 
	repeat INTEGER NOT NULL, 
	check_id TEXT NOT NULL, 
	content_hash VARCHAR(64) NOT NULL, 
	check_type TEXT NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	passed BOOLEAN, 
	result TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_check_result PRIMARY KEY (run_id, case_index, repeat, check_id), 
	CONSTRAINT fk_check_result_run_case FOREIGN KEY(run_id, case_index) REFERENCES run_case (run_id, case_index) ON DELETE CASCADE
);
INSERT INTO "check_result" VALUES('ad05016841da4355b5d98c35d9c7d377',0,0,'right','b8f1fede5bf8d7e7e1eac80dc8e62a4507b08107be42e263c1eaec2939fb3867','contains','completed',1,'{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:16.310216Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Paris."},"phrases":{"jsonpath":"$.test_case.expected","value":"Paris"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.092}}','2026-11-26 12:41:16.357575');
INSERT INTO "check_result" VALUES('ad05016841da4355b5d98c35d9c7d377',0,0,'short','b9007702446d0e8a63d04fc2dc2e1ee6bf66228640fedc15f21045f16bc5e6c7','text_distance','completed',1,'{"check_type":"text_distance","status":"completed","results":{"score":0.5882352941176471,"passed":true},"evaluated_at":"2026-11-26T12:41:16.357139Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Paris."},"expected":{"jsonpath":"$.test_case.expected","value":"Paris"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":46.91}}','2026-11-26 12:41:16.357575');
INSERT INTO "check_result" VALUES('ad05016841da4355b5d98c35d9c7d377',1,0,'right','ac4f89913f4f7cbf31f51cae53717a9247f7fb32354b00c14b6eac62cbfccdba','contains','completed',0,'{"check_type":"contains","status":"completed","results":{"passed":false},"evaluated_at":"2026-11-26T12:41:16.365590Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Kyoto."},"phrases":{"jsonpath":"$.test_case.expected","value":"Tokyo"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.097}}','2026-11-26 12:41:16.365948');
INSERT INTO "check_result" VALUES('ad05016841da4355b5d98c35d9c7d377',1,0,'short','2058ee1a2b79f06e9e2979725dab7a555646f9a88d0e3f9d94f9ad29c2a7bf7f','text_distance','completed',1,'{"check_type":"text_distance","status":"completed","results":{"score":0.23529411764705888,"passed":true},"evaluated_at":"2026-11-26T12:41:16.365671Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Kyoto."},"expected":{"jsonpath":"$.test_case.expected","value":"Tokyo"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.065}}','2026-11-26 12:41:16.365948');
INSERT INTO "check_result" VALUES('ad05016841da4355b5d98c35d9c7d377',2,0,'right','b3841e2481ed1c578befa377d8691888635d4cbd62c4b6326c84b78aed9c162f','contains','completed',1,'{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:16.371770Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Lima. \u2602"},"phrases":{"jsonpath":"$.test_case.expected","value":"Lima"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.081}}','2026-11-26 12:41:16.372258');
INSERT INTO "check_result" VALUES('ad05016841da4355b5d98c35d9c7d377',2,0,'short','fc843953743ed3a79a3bdb8f05fa5e3cb78f0eaafbf1203054e1843c3e882a5e','text_distance','completed',1,'{"check_type":"text_distance","status":"completed","results":{"score":0.47058823529411764,"passed":true},"evaluated_at":"2026-11-26T12:41:16.371868Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Lima. \u2602"},"expected":{"jsonpath":"$.test_case.expected","value":"Lima"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.084}}','2026-11-26 12:41:16.372258');
INSERT INTO "check_result" VALUES('2e506f2e0cbf41bb9500521cdddba531',0,0,'right','b8f1fede5bf8d7e7e1eac80dc8e62a4507b08107be42e263c1eaec2939fb3867','contains','completed',1,'{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:16.436893Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Paris."},"phrases":{"jsonpath":"$.test_case.expected","value":"Paris"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.061}}','2026-11-26 12:41:16.437359');
INSERT INTO "check_result" VALUES('2e506f2e0cbf41bb9500521cdddba531',0,0,'short','b9007702446d0e8a63d04fc2dc2e1ee6bf66228640fedc15f21045f16bc5e6c7','text_distance','completed',1,'{"check_type":"text_distance","status":"completed","results":{"score":0.5882352941176471,"passed":true},"evaluated_at":"2026-11-26T12:41:16.436966Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Paris."},"expected":{"jsonpath":"$.test_case.expected","value":"Paris"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.059}}','2026-11-26 12:41:16.437359');
INSERT INTO "check_result" VALUES('2e506f2e0cbf41bb9500521cdddba531',1,0,'right','0dc62d69affc4762829270da53c4891f2a6454904af71e19fb0a1fe2181da7c1','contains','completed',1,'{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:16.444109Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Tokyo."},"phrases":{"jsonpath":"$.test_case.expected","value":"Tokyo"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.051}}','2026-11-26 12:41:16.444330');
INSERT INTO "check_result" VALUES('2e506f2e0cbf41bb9500521cdddba531',1,0,'short','c346a1a5e70fd34ea269f65eff023774b1522fe7269a92b8d1eee93128052cb1','text_distance','completed',1,'{"check_type":"text_distance","status":"completed","results":{"score":0.5882352941176471,"passed":true},"evaluated_at":"2026-11-26T12:41:16.444161Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Tokyo."},"expected":{"jsonpath":"$.test_case.expected","value":"Tokyo"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.04}}','2026-11-26 12:41:16.444330');
INSERT INTO "check_result" VALUES('2e506f2e0cbf41bb9500521cdddba531',2,0,'right','b3841e2481ed1c578befa377d8691888635d4cbd62c4b6326c84b78aed9c162f','contains','completed',1,'{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:16.451325Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Lima. \u2602"},"phrases":{"jsonpath":"$.test_case.expected","value":"Lima"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.046}}','2026-11-26 12:41:16.451584');
INSERT INTO "check_result" VALUES('2e506f2e0cbf41bb9500521cdddba531',2,0,'short','fc843953743ed3a79a3bdb8f05fa5e3cb78f0eaafbf1203054e1843c3e882a5e','text_distance','completed',1,'{"check_type":"text_distance","status":"completed","results":{"score":0.47058823529411764,"passed":true},"evaluated_at":"2026-11-26T12:41:16.451396Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Lima. \u2602"},"expected":{"jsonpath":"$.test_case.expected","value":"Lima"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.059}}','2026-11-26 12:41:16.451584');
CREATE TABLE evalguard_report (
	id VARCHAR(64) NOT NULL, 
	imported_at DATETIME NOT NULL, 
	source TEXT NOT NULL, 
	report_id TEXT, 
	model_name TEXT, 
	model_source TEXT, 
	evaluated_at DATETIME, 
	tasks TEXT NOT NULL, 
	report TEXT NOT NULL, 
	warnings TEXT NOT NULL, 
	CONSTRAINT pk_evalguard_report PRIMARY KEY (id)
);
CREATE TABLE evalguard_report_metric (
	report_id VARCHAR(64) NOT NULL, 
	metric_index INTEGER NOT NULL, 
	task_ref TEXT, 
	metric TEXT, 
	CONSTRAINT pk_evalguard_report_metric PRIMARY KEY (report_id, metric_index), 
	CONSTRAINT fk_evalguard_report_metric_evalguard_report FOREIGN KEY(report_id) REFERENCES evalguard_report (id) ON DELETE CASCADE
);
CREATE TABLE evalguard_run (
	run_id VARCHAR(64) NOT NULL, 
	completed_at DATETIME NOT NULL, 
	CONSTRAINT pk_evalguard_run PRIMARY KEY (run_id), 
	CONSTRAINT fk_evalguard_run_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE TABLE grader (
	id VARCHAR(100) NOT NULL, 
	name TEXT NOT NULL, 
	checks TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_grader PRIMARY KEY (id)
);
CREATE TABLE label (
	id INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	case_index INTEGER NOT NULL, 
	repeat INTEGER NOT NULL, 
	check_id TEXT NOT NULL, 
	field TEXT NOT NULL, 
	label TEXT NOT NULL, 
	note TEXT NOT NULL, 
	labelled_by TEXT NOT NULL, 
	draw_id VARCHAR(64), 
	disputed BOOLEAN NOT NULL, 
	CONSTRAINT pk_label PRIMARY KEY (id), 
	CONSTRAINT fk_label_run_case FOREIGN KEY(run_id, case_index) REFERENCES run_case (run_id, case_index) ON DELETE CASCADE, 
	CONSTRAINT fk_label_label_draw FOREIGN KEY(draw_id) REFERENCES label_draw (id) ON DELETE SET NULL
);
INSERT INTO "label" VALUES(1,'2026-11-26 12:41:16.488431','2e506f2e0cbf41bb9500521cdddba531',1,1,'right','passed','true','yes','ann',NULL,0);
CREATE TABLE label_draw (
	id VARCHAR(64) NOT NULL, 
	created_at DATETIME NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	check_id TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	design VARCHAR(16) NOT NULL, 
	case_ids TEXT NOT NULL, 
	CONSTRAINT pk_label_draw PRIMARY KEY (id), 
	CONSTRAINT fk_label_draw_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE TABLE metric_total (
	metric VARCHAR(32) NOT NULL, 
	suite TEXT NOT NULL, 
	label VARCHAR(64) NOT NULL, 
	value BIGINT NOT NULL, 
	CONSTRAINT pk_metric_total PRIMARY KEY (metric, suite, label)
);
INSERT INTO "metric_total" VALUES('suite','capitals','',1);
INSERT INTO "metric_total" VALUES('calls','capitals','recorded',6);
INSERT INTO "metric_total" VALUES('checks','capitals','passed',11);
INSERT INTO "metric_total" VALUES('write_seconds','','0.1',1);
INSERT INTO "metric_total" VALUES('write_seconds','','sum',107828);
INSERT INTO "metric_total" VALUES('write_seconds','','0.005',9);
INSERT INTO "metric_total" VALUES('checks','capitals','failed',1);
INSERT INTO "metric_total" VALUES('runs','capitals','fail',1);
INSERT INTO "metric_total" VALUES('last_verdict','capitals','',1795696876465608);
INSERT INTO "metric_total" VALUES('runs','capitals','pass',1);
CREATE TABLE output (
	run_id VARCHAR(64) NOT NULL, 
	case_index INTEGER NOT NULL, 
	repeat INTEGER NOT NULL, 
	content_hash VARCHAR(64) NOT NULL, 
	output_id TEXT, 
	value TEXT NOT NULL, 
	metadata TEXT, 
	failed BOOLEAN NOT NULL, 
	reused_from VARCHAR(64), 
	blob VARCHAR(64), 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_output PRIMARY KEY (run_id, case_index, repeat), 
	CONSTRAINT fk_output_run_case FOREIGN KEY(run_id, case_index) REFERENCES run_case (run_id, case_index) ON DELETE CASCADE, 
	CONSTRAINT fk_output_blob FOREIGN KEY(blob) REFERENCES blob (digest)
);
INSERT INTO "output" VALUES('ad05016841da4355b5d98c35d9c7d377',0,0,'fa12c74cf7c1783e6a4fbee2a8b1779f9325b1f860b88a5b0071832bae039302',NULL,'"It is Paris."','{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}',0,NULL,NULL,'2026-11-26 12:41:16.227479');
INSERT INTO "output" VALUES('ad05016841da4355b5d98c35d9c7d377',1,0,'39a7fd130a18ec5403a30531eb75643474020631bfa50ed6ba3faf80b5f92029',NULL,'"It is Kyoto."','{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}',0,NULL,NULL,'2026-11-26 12:41:16.363302');
INSERT INTO "output" VALUES('ad05016841da4355b5d98c35d9c7d377',2,0,'5d27af0c863a5b7317c3dc94bf4d2482f064fcb32de2e2fbffbe2af0ab440596',NULL,'"It is Lima. \u2602"','{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}',0,NULL,NULL,'2026-11-26 12:41:16.369794');
INSERT INTO "output" VALUES('2e506f2e0cbf41bb9500521cdddba531',0,0,'fa12c74cf7c1783e6a4fbee2a8b1779f9325b1f860b88a5b0071832bae039302',NULL,'"It is Paris."','{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}',0,NULL,NULL,'2026-11-26 12:41:16.432159');
INSERT INTO "output" VALUES('2e506f2e0cbf41bb9500521cdddba531',1,0,'36f888e0931692bfd59bd983ea8a5b263f3cd20cdf8dcee3e7e6ab6c95e48cb4',NULL,'"It is Tokyo."','{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}',0,NULL,NULL,'2026-11-26 12:41:16.441568');
INSERT INTO "output" VALUES('2e506f2e0cbf41bb9500521cdddba531',2,0,'5d27af0c863a5b7317c3dc94bf4d2482f064fcb32de2e2fbffbe2af0ab440596',NULL,'"It is Lima. \u2602"','{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}',0,NULL,NULL,'2026-11-26 12:41:16.448824');
CREATE TABLE page_session (
	id_hash VARCHAR(64) NOT NULL, 
	key_id VARCHAR(16) NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	CONSTRAINT pk_page_session PRIMARY KEY (id_hash), 
	CONSTRAINT fk_page_session_api_key FOREIGN KEY(key_id) REFERENCES api_key (id) ON DELETE CASCADE
);
CREATE TABLE preference (
	pair VARCHAR(64) NOT NULL, 
	question_hash VARCHAR(64) NOT NULL, 
	is_judge BOOLEAN NOT NULL, 
	given_by TEXT NOT NULL, 
	question TEXT NOT NULL, 
	preferred VARCHAR(64), 
	left_output VARCHAR(64), 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_preference PRIMARY KEY (pair, question_hash, is_judge, given_by)
);
CREATE TABLE run (
	id VARCHAR(64) NOT NULL, 
	name TEXT NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	created_at DATETIME NOT NULL, 
	started_at DATETIME, 
	completed_at DATETIME, 
	suite TEXT NOT NULL, 
	suite_path TEXT, 
	repeats INTEGER NOT NULL, 
	n_cases INTEGER NOT NULL, 
	tags TEXT NOT NULL, 
	flow_run_id VARCHAR(64), 
	lease_owner TEXT, 
	lease_until DATETIME, 
	cancel_requested_at DATETIME, 
	outcome VARCHAR(16), 
	metrics TEXT, 
	verdict TEXT, 
	stats TEXT, 
	error TEXT, 
	suite_hash VARCHAR(64), 
	cases_hash VARCHAR(64), 
	target_hash VARCHAR(64), 
	version TEXT, 
	cause VARCHAR(16), 
	options TEXT, 
	rescored_from VARCHAR(64), 
	takeovers INTEGER NOT NULL, 
	takeovers_left INTEGER NOT NULL, 
	CONSTRAINT pk_run PRIMARY KEY (id), 
	CONSTRAINT uq_run_flow_run_id UNIQUE (flow_run_id)
);
INSERT INTO "run" VALUES('ad05016841da4355b5d98c35d9c7d377','capitals','completed','2026-11-26 12:41:16.177024','2026-11-26 12:41:16.203000','2026-11-26 12:41:16.383832','{"name":"capitals","target":{"recorded":{"path":"outputs.jsonl","output":"$.output"}},"test_cases":[{"id":"france","input":"The capital of France?","expected":"Paris","metadata":{"continent":"Europe"}},{"id":"japan","input":"The capital of Japan?","expected":"Tokyo","metadata":{"continent":"Asia"}},{"id":"peru","input":"The capital of Peru? \u2602","expected":"Lima","metadata":{"continent":"South America"}}],"checks":[{"type":"contains","arguments":{"text":"$.output.value","phrases":"$.test_case.expected"},"id":"right"},{"type":"text_distance","arguments":{"text":"$.output.value","expected":"$.test_case.expected","pass_at":0.1},"id":"short"}]}','/tmp/tmpb11tcs1_/sqlite/suite.yaml',1,3,'[]',NULL,NULL,NULL,NULL,'fail','[{"id":"right","check":"right","value":0.6666666666666666,"stderr":0.3333333333333333,"low":0.20765960080204782,"high":0.9385080552796038,"confidence":0.95,"method":"wilson","n_expected":3,"n_completed":3,"n_error":0,"n_skipped":0},{"id":"short","check":"short","value":1.0,"stderr":0.0,"low":0.4385029682449546,"high":1.0,"confidence":0.95,"method":"wilson","n_expected":3,"n_completed":3,"n_error":0,"n_skipped":0}]','{"outcome":"fail","gate":"Every check must pass.","reasons":["right: 1 of 3 results failed.","short: 3 of 3 results passed."],"rules":[{"rule":"right: every case passes","check":"right","outcome":"fail","reason":"right: 1 of 3 results failed."},{"rule":"short: every case passes","check":"short","outcome":"pass","reason":"short: 3 of 3 results passed."}],"not_judged":[],"blocks":true,"slices":[],"confusions":[],"warnings":[]}','{"calls":3,"failed_calls":0,"checks":6,"passed":5,"failed":1,"errors":0}',NULL,'8bc89a50b794de48ee5d77dc93236a8f5b4e6d3414e02cc9a49afc309e9e78ed','5353a49ccc908df7cc951a70ff8d77589545901561d42975fa966c5baf86f298','e86d7f171af6588750d56d744087d81ba6eff1b579a5d177f0d2c1da4193f9fd',NULL,'command',NULL,NULL,0,0);
INSERT INTO "run" VALUES('2e506f2e0cbf41bb9500521cdddba531','capitals','completed','2026-11-26 12:41:16.400954','2026-11-26 12:41:16.414000','2026-11-26 12:41:16.465608','{"name":"capitals","target":{"recorded":{"path":"outputs.jsonl","output":"$.output"}},"test_cases":[{"id":"france","input":"The capital of France?","expected":"Paris","metadata":{"continent":"Europe"}},{"id":"japan","input":"The capital of Japan?","expected":"Tokyo","metadata":{"continent":"Asia"}},{"id":"peru","input":"The capital of Peru? \u2602","expected":"Lima","metadata":{"continent":"South America"}}],"checks":[{"type":"contains","arguments":{"text":"$.output.value","phrases":"$.test_case.expected"},"id":"right"},{"type":"text_distance","arguments":{"text":"$.output.value","expected":"$.test_case.expected","pass_at":0.1},"id":"short"}]}','/tmp/tmpb11tcs1_/sqlite/suite.yaml',1,3,'[]',NULL,NULL,NULL,NULL,'pass','[{"id":"right","check":"right","value":1.0,"stderr":0.0,"low":0.4385029682449546,"high":1.0,"confidence":0.95,"method":"wilson","n_expected":3,"n_completed":3,"n_error":0,"n_skipped":0},{"id":"short","check":"short","value":1.0,"stderr":0.0,"low":0.4385029682449546,"high":1.0,"confidence":0.95,"method":"wilson","n_expected":3,"n_completed":3,"n_error":0,"n_skipped":0}]','{"outcome":"pass","gate":"Every check must pass.","reasons":["right: 3 of 3 results passed.","short: 3 of 3 results passed."],"rules":[{"rule":"right: every case passes","check":"right","outcome":"pass","reason":"right: 3 of 3 results passed."},{"rule":"short: every case passes","check":"short","outcome":"pass","reason":"short: 3 of 3 results passed."}],"not_judged":[],"blocks":false,"slices":[],"confusions":[],"warnings":[]}','{"calls":3,"failed_calls":0,"checks":6,"passed":6,"failed":0,"errors":0}',NULL,'8bc89a50b794de48ee5d77dc93236a8f5b4e6d3414e02cc9a49afc309e9e78ed','5353a49ccc908df7cc951a70ff8d77589545901561d42975fa966c5baf86f298','06ee751368b8c82880c29d545da9b9aa6d8578260c49ceba1e14b3260942ec86',NULL,'command',NULL,NULL,0,0);
CREATE TABLE run_case (
	run_id VARCHAR(64) NOT NULL, 
	case_index INTEGER NOT NULL, 
	case_id TEXT NOT NULL, 
	data TEXT NOT NULL, 
	CONSTRAINT pk_run_case PRIMARY KEY (run_id, case_index), 
	CONSTRAINT uq_run_case_run_id_case_id UNIQUE (run_id, case_id), 
	CONSTRAINT fk_run_case_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
INSERT INTO "run_case" VALUES('ad05016841da4355b5d98c35d9c7d377',0,'france','{"id":"france","input":"The capital of France?","expected":"Paris","metadata":{"continent":"Europe"}}');
INSERT INTO "run_case" VALUES('ad05016841da4355b5d98c35d9c7d377',1,'japan','{"id":"japan","input":"The capital of Japan?","expected":"Tokyo","metadata":{"continent":"Asia"}}');
INSERT INTO "run_case" VALUES('ad05016841da4355b5d98c35d9c7d377',2,'peru','{"id":"peru","input":"The capital of Peru? \u2602","expected":"Lima","metadata":{"continent":"South America"}}');
INSERT INTO "run_case" VALUES('2e506f2e0cbf41bb9500521cdddba531',0,'france','{"id":"france","input":"The capital of France?","expected":"Paris","metadata":{"continent":"Europe"}}');
INSERT INTO "run_case" VALUES('2e506f2e0cbf41bb9500521cdddba531',1,'japan','{"id":"japan","input":"The capital of Japan?","expected":"Tokyo","metadata":{"continent":"Asia"}}');
INSERT INTO "run_case" VALUES('2e506f2e0cbf41bb9500521cdddba531',2,'peru','{"id":"peru","input":"The capital of Peru? \u2602","expected":"Lima","metadata":{"continent":"South America"}}');
CREATE TABLE run_request (
	run_id VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	caller TEXT, 
	idempotency_key VARCHAR(200), 
	request_hash VARCHAR(64) NOT NULL, 
	request TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	dispatched_at DATETIME, 
	CONSTRAINT pk_run_request PRIMARY KEY (run_id), 
	CONSTRAINT fk_run_request_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE, 
	CONSTRAINT uq_run_request_idempotency_key UNIQUE (idempotency_key)
);
CREATE TABLE shard (
	run_id VARCHAR(64) NOT NULL, 
	shard INTEGER NOT NULL, 
	lease_owner TEXT, 
	lease_until DATETIME, 
	CONSTRAINT pk_shard PRIMARY KEY (run_id, shard), 
	CONSTRAINT fk_shard_run FOREIGN KEY(run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE TABLE test_case (
	id VARCHAR(200) NOT NULL, 
	data TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_test_case PRIMARY KEY (id)
);
CREATE INDEX ix_run_name ON run (name);
CREATE INDEX ix_run_status ON run (status);
CREATE INDEX ix_run_created_at ON run (created_at);
CREATE INDEX ix_cached_response_model ON cached_response (model);
CREATE INDEX ix_cached_response_responded_at ON cached_response (responded_at);
CREATE INDEX ix_calibration_judge ON calibration (judge, rubric);
CREATE INDEX ix_evalguard_report_imported_at ON evalguard_report (imported_at);
CREATE INDEX ix_evalguard_report_model_name ON evalguard_report (model_name);
CREATE INDEX ix_evalguard_report_report_id ON evalguard_report (report_id);
CREATE INDEX ix_audit_entry_at ON audit_entry (at);
CREATE INDEX ix_test_case_created_at ON test_case (created_at);
CREATE INDEX ix_label_draw_run_id ON label_draw (run_id);
CREATE INDEX ix_evalguard_report_metric_task ON evalguard_report_metric (task_ref, metric, report_id);
CREATE INDEX ix_evalguard_report_metric_metric ON evalguard_report_metric (metric, report_id);
CREATE INDEX ix_page_session_key_id ON page_session (key_id, created_at);
CREATE INDEX ix_run_request_created_at ON run_request (created_at);
CREATE INDEX ix_output_blob ON output (blob) WHERE blob IS NOT NULL;
CREATE INDEX ix_output_content_hash ON output (content_hash);
CREATE INDEX ix_check_result_outcome ON check_result (run_id, status, passed, case_index, repeat);
CREATE INDEX ix_label_run_id ON label (run_id, case_index);
CREATE TRIGGER audit_entry_unchanged BEFORE UPDATE ON audit_entry BEGIN SELECT RAISE(ABORT, 'rows of audit_entry do not change'); END;
COMMIT;
