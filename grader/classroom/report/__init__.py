"""The report of a class: what to teach, who has what, and what the tasks and tests themselves show.

    outcomes = class_outcomes.of_course(opened, labs)       # or of_run(folder, labs)
    report = class_report.build(outcomes, labs, anonymous=False)
    report_page.page(report)                                # one HTML file, offline

`class_outcomes` reads, `item_statistics` computes, `item_flags` says in words what a person should
look at, and `report_page` and `report_tables` show what `class_report` holds.
"""
