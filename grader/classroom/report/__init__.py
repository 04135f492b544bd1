"""The report of a class: what to teach, who has what, and what the tasks and tests themselves show.

    outcomes = class_outcomes.of_course(opened, labs)       # or of_run(folder, labs)
    report = building.build(outcomes, anonymous=False)      # building.only(report, id): one student
    report_page.page(report)                                # one HTML file, offline
    report_tables.tables(report)                            # CSV texts by file name

`class_outcomes` reads, `item_statistics` computes, `item_flags` says in words what a person should
look at, `building` puts it together, and `report_page` and `report_tables` show what `class_report`
holds.
"""
